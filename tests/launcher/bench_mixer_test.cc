// `weft bench mixer` as a user starts it.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "layers/mixers/registry.h"
#include "tests/support/program.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

nlohmann::json bench(const std::vector<std::string>& options) {
  const ScratchFolder folder;
  std::vector<std::string> all = {"bench",         "mixer",
                                  "--heads",       "2",
                                  "--dk",          "8",
                                  "--dv",          "8",
                                  "--json",        folder / "mixer.json",
                                  "--repetitions", "1"};
  all.insert(all.end(), options.begin(), options.end());
  const Outcome outcome = run_weft(all);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::ifstream file(folder / "mixer.json");
  return nlohmann::json::parse(file, nullptr, false);
}

TEST(BenchMixer, NamesTheProgramItRan) {
  EXPECT_EQ(bench({"--mixer", "gla", "--seq", "70"})["program"], "diagonal_scan");
  EXPECT_EQ(bench({"--mixer", "mom", "--seq", "70"})["program"], "delta_scan");
  EXPECT_EQ(bench({"--mixer", "gfw", "--seq", "70"})["program"], "two_sided_scan");
}

// Output that layers/mixers/README.md cites.
TEST(BenchMixer, SaysWhatKeptStatesCost) {
  const nlohmann::json both = bench({"--mixer", "kda", "--seq", "256", "--chunk-states", "both"});
  EXPECT_GT(both["bytes_saved"], both["other_bytes_saved"]);
  EXPECT_GT(both["other_bytes_saved"], 0);
  EXPECT_GT(both["state_bytes"], 0);
  EXPECT_GT(both["peak_gflops_before"], 0);
  EXPECT_GT(both["peak_gflops_after"], 0);
  EXPECT_TRUE(both["noisy"].is_boolean());
}

TEST(BenchMixer, MeasuresEveryMixerInOneRun) {
  const nlohmann::json all = bench(
      {"--mixer", "all", "--seq", "8", "--decode", "1", "--threads", "1", "--precision", "bf16"});
  ASSERT_TRUE(all.is_array());
  std::vector<std::string> names, wanted;
  for (const nlohmann::json& one : all) {
    names.push_back(one["mixer"]);
    EXPECT_GT(one["share_of_gemm"], 0) << names.back();
    EXPECT_GT(one["state_bytes"], 0) << names.back();
  }
  for (const MixerInfo& mixer : mixer_list()) wanted.push_back(mixer.name);
  EXPECT_EQ(names, wanted);
}

TEST(BenchMixer, RefusesOneMixersOptionsForAll) {
  const Outcome outcome = run_weft({"bench", "mixer", "--mixer", "all", "--set", "window = 5"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("name the one"), std::string::npos) << outcome.err;
}

// 16 channels give a state of 136 rows, 128 would give 8256.
TEST(BenchMixer, TakesTheFeatureWidthThatRebasedWasPublishedWith) {
  const ScratchFolder folder;
  const Outcome outcome = run_weft({"bench", "mixer", "--mixer", "rebased", "--seq", "8", "--heads",
                                    "1", "--repetitions", "1", "--json", folder / "mixer.json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::ifstream file(folder / "mixer.json");
  EXPECT_EQ(nlohmann::json::parse(file, nullptr, false)["dk"], 16);
}

// Heads that forget fast keep only the diagonal of the eight blocks of 128 queries and keys.
TEST(BenchMixer, ReportsTheShareThatFoxPrunes) {
  const std::vector<std::string> fox = {"--mixer",  "fox", "--seq", "1024",
                                        "--decode", "0",   "--acp"};
  auto with = fox, without = fox;
  with.push_back("on"), without.push_back("off");
  const nlohmann::json pruned = bench(with);
  EXPECT_EQ(pruned["pruned_by_head"].size(), 2u);
  EXPECT_GT(pruned["pruned"], 0.3);
  EXPECT_FALSE(bench(without).contains("pruned"));
  auto both = fox;
  both.push_back("both");
  EXPECT_EQ(bench(both)["pruned"], pruned["pruned"]);
}

TEST(BenchMixer, RefusesToPruneOtherMixers) {
  const Outcome outcome = run_weft({"bench", "mixer", "--mixer", "gla", "--acp", "on"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("option of fox"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace weft::test
