// `weft bench mixer` as a user meets it.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

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
}

// Of eight blocks of 128 queries and their keys, heads that forget fast keep those at the diagonal.
TEST(BenchMixer, ReportsTheShareThatFoxPrunes) {
  const std::vector<std::string> fox = {"--mixer",  "fox", "--seq", "1024",
                                        "--decode", "0",   "--acp"};
  auto with = fox, without = fox;
  with.push_back("on"), without.push_back("off");
  const nlohmann::json pruned = bench(with);
  EXPECT_EQ(pruned["pruned_by_head"].size(), 2u);
  EXPECT_GT(pruned["pruned"], 0.3);
  EXPECT_FALSE(bench(without).contains("pruned"));
}

TEST(BenchMixer, RefusesToPruneOtherMixers) {
  const Outcome outcome = run_weft({"bench", "mixer", "--mixer", "gla", "--acp", "on"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("option of fox"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace weft::test
