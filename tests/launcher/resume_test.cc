// Stop and resume equals uninterrupted, bit for bit; damage is named and the checkpoint before it
// is used.
#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/rng.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "tests/support/tiny_runs.h"

namespace weft::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class Resume : public TinyRuns {};

TEST_F(Resume, AfterAStopOnRequestEqualsUninterrupted) {
  ASSERT_EQ(run_weft(arguments("whole")).code, 0);
  for (const auto& [step, signal] : std::map<int, int>{{3, SIGTERM}, {5, SIGINT}, {8, SIGUSR1}}) {
    Program program(
        arguments("parts", {"train.log_every=1", fmt::format("--fault=0:{}:asked", step + 1)}));
    ASSERT_TRUE(program.wait_for(fmt::format("  {}/12  loss", step)));
    program.signal(signal);
    const Outcome stopped = program.wait();
    ASSERT_EQ(stopped.code, 75) << stopped.err;
  }
  const Outcome resumed = run_weft(arguments("parts"));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.out.find("resumes"), std::string::npos);
  EXPECT_EQ(losses("whole"), losses("parts"));
  EXPECT_TRUE(weights("whole") == weights("parts")) << "weights or moments differ";
}

TEST_F(Resume, AfterBeingKilledEqualsUninterrupted) {
  ASSERT_EQ(run_weft(arguments("whole")).code, 0);
  for (const int step : {2, 5, 9}) {
    Program program(
        arguments("parts", {"train.log_every=1", fmt::format("--fault=0:{}:hang", step + 1)}));
    ASSERT_TRUE(program.wait_for(fmt::format("  {}/12  loss", step)));
    program.signal(SIGKILL);
    EXPECT_EQ(program.wait().code, 128 + SIGKILL);
  }
  ASSERT_EQ(run_weft(arguments("parts")).code, 0);
  EXPECT_EQ(losses("whole"), losses("parts"));
  EXPECT_TRUE(weights("whole") == weights("parts")) << "weights or moments differ";
}

// Hashes of weights and moments, by name.
std::map<std::string, std::string> hashes_of(const std::string& checkpoint, const std::string& of) {
  std::map<std::string, std::string> hashes;
  for (const Manifest::Piece& piece : read_checkpoint(checkpoint).manifest.pieces) {
    if (piece.tensor.starts_with(of)) hashes[piece.tensor] = piece.hash;
  }
  return hashes;
}

// Checkpoints are f32 in every precision: after a step without effect, the weights have the bits of
// the run in the other precision.
TEST_F(Resume, GoesOnInAnotherPrecision) {
  for (const auto& [first, second] :
       std::map<std::string, std::string>{{"bf16", "f32"}, {"f32", "bf16"}}) {
    const std::string run = first + "_first";
    ASSERT_EQ(run_weft(arguments(run, {"train.steps=4", "train.precision=" + first})).code, 0);
    const Outcome o = run_weft(arguments(run, {"train.steps=5", "train.precision=" + second,
                                               "optimizer.lr=0", "model.moe.bias_rate=0"}));
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.out.find(fmt::format(R"(train.precision "{}" -> "{}")", first, second)),
              std::string::npos)
        << o.out;
    const auto found = checkpoints(run);
    ASSERT_EQ(found.size(), 2u);
    const auto before = hashes_of(found[0], "parameters/"),
               after = hashes_of(found[1], "parameters/");
    EXPECT_GT(before.size(), 10u);
    EXPECT_EQ(before, after) << first;
    EXPECT_NE(hashes_of(found[0], "adam/m/"), hashes_of(found[1], "adam/m/")) << "no step was made";
  }
}

TEST_F(Resume, PassesOverADamagedCheckpointAndSaysSo) {
  ASSERT_EQ(run_weft(arguments("run", {"train.steps=8"})).code, 0);
  const fs::path newest = checkpoints("run").back() / "rank-00000.h5";
  std::string bytes = get_file(newest);
  bytes[bytes.size() / 2] ^= 4;
  put_file(newest, bytes);
  const Outcome o = run_weft(arguments("run"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("is damaged"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("after step 4"), std::string::npos) << o.out;
  ASSERT_EQ(run_weft(arguments("whole")).code, 0);
  EXPECT_TRUE(weights("whole") == weights("run")) << "weights or moments differ";
  EXPECT_TRUE(fs::exists(folder_ / "run/checkpoints/damaged-step-000000008"));
}

// 1000 random bits of a small checkpoint, in every one of its files: each flip is seen.
TEST_F(Resume, EveryFlippedBitIsSeen) {
  ASSERT_EQ(run_weft(arguments("run", {"train.steps=1", "model.hidden=32", "model.vocab=100",
                                       "model.moe.ffn=16"}))
                .code,
            0);
  const fs::path path = checkpoints("run").back();
  ASSERT_NO_THROW(verify_completely(path));
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  ASSERT_EQ(files.size(), 3u) << "index.h5, manifest.json, rank-00000.h5";
  const RandomStream random(3, "flips");
  for (uint64_t i = 0; i < 1000; ++i) {
    const fs::path& file = files[i % 3];
    const std::string good = get_file(file);
    std::string bad = good;
    const uint64_t bit = random.below(i, bad.size() * 8);
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    put_file(file, bad);
    try {
      verify_completely(path);
      // Only in white space of the manifest a flip may have no meaning.
      EXPECT_EQ(file.filename(), "manifest.json") << "bit " << bit;
      EXPECT_TRUE(json::parse(bad) == json::parse(good)) << "bit " << bit;
    } catch (const std::exception&) {
    }
    put_file(file, good);
  }
}

TEST_F(Resume, KeepsTheNewestAndRemovesOlderOnes) {
  ASSERT_EQ(run_weft(arguments("run", {"run.checkpoint_every=2", "run.keep=3"})).code, 0);
  const auto found = checkpoints("run");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found.front().filename(), "step-000000008");
  EXPECT_EQ(found.back().filename(), "step-000000012");
}

TEST_F(Resume, StartsFromTheWeightsOfAnotherRun) {
  ASSERT_EQ(run_weft(arguments("first", {"train.steps=12"})).code, 0);
  const Outcome o =
      run_weft(arguments("second", {"run.init=" + (folder_ / "first"), "train.steps=1"}));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_LT(losses("second")[1], losses("first")[1]);
  const Outcome missing = run_weft(arguments("third", {"run.init=" + (folder_ / "nowhere")}));
  EXPECT_EQ(missing.code, 2);
}

TEST_F(Resume, RefusesTwoRunsInOneFolder) {
  Program first(arguments("run", {"train.steps=100000"}));
  ASSERT_TRUE(first.wait_for("1/100000  loss"));
  const Outcome second = run_weft(arguments("run"));
  EXPECT_EQ(second.code, 2);
  EXPECT_NE(second.err.find("another run"), std::string::npos) << second.err;
}

TEST_F(Resume, RefusesAFolderItCannotWrite) {
  const Outcome o = run_weft(arguments("corpus.bin/run"));
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("corpus.bin/run"), std::string::npos) << o.err;
}

}  // namespace
}  // namespace weft::test
