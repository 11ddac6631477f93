// `weft train` and `weft bench step` as a user starts them.
#include <signal.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/base/rng.h"
#include "core/data/indexed_dataset.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"

namespace weft::test {
namespace {

using nlohmann::json;

// A corpus of `documents` short documents of a simple language over bytes.
std::string make_corpus(const ScratchFolder& folder, int64_t documents = 60, int32_t largest = 96) {
  const std::string prefix = folder / "corpus";
  IndexedDatasetWriter writer(prefix, TokenType::kU16);
  const RandomStream random(5, "corpus");
  for (int64_t d = 0; d < documents; ++d) {
    std::vector<int32_t> tokens;
    for (uint64_t t = 0; t < 200; ++t) {
      const uint64_t at = static_cast<uint64_t>(d) * 1000 + t;
      tokens.push_back(static_cast<int32_t>(t % 3 == 0 ? random.below(at, 16) : 32 + t % 64));
    }
    tokens.back() = largest;
    writer.add_document(tokens);
  }
  writer.finish();
  return prefix;
}

std::vector<std::string> tiny(const std::string& corpus, const ScratchFolder& folder,
                              const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"train",
                                        in_project("configs/tiny.toml"),
                                        "data.train=[\"" + corpus + "\"]",
                                        "run.dir=" + (folder / "run"),
                                        "train.steps=4",
                                        "optimizer.warmup=1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<json> metrics_of(const ScratchFolder& folder) {
  std::vector<json> lines;
  std::ifstream file(folder / "run/metrics.jsonl");
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

// The remark comes before the first step.
TEST(Train, SaysWhichLayersRunTokenByToken) {
  const ScratchFolder folder;
  const Outcome o = run_weft(tiny(make_corpus(folder), folder,
                                  {"train.steps=1", "model.layer.L.mixer=ttt",
                                   "model.layer.L.inner_norm=true", "model.layer.L.mini_batch=1"}));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("note: inner_norm with mini_batch = 1"), std::string::npos) << o.out;
}

TEST(Train, LearnsAndLeavesItsRecord) {
  const ScratchFolder folder;
  const Outcome o = run_weft(tiny(make_corpus(folder), folder,
                                  {"train.steps=25", "data.split=0.2", "data.eval_every=10",
                                   "data.eval_batches=2", "optimizer.lr=3e-3"}));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("parameters"), std::string::npos);
  EXPECT_NE(o.out.find("step     1/25"), std::string::npos);
  EXPECT_NE(o.out.find("valid  loss"), std::string::npos);
  const std::vector<json> metrics = metrics_of(folder);
  ASSERT_EQ(metrics.size(), 25u);
  EXPECT_LT(metrics.back()["loss"].get<double>(), metrics.front()["loss"].get<double>() - 0.5);
  for (const char* key :
       {"step", "loss", "aux_loss", "grad_norm", "lr", "step_ms", "tokens_per_s", "mfu", "tokens",
        "peak_bytes", "comm_bytes", "expert_load", "dropped", "skipped"}) {
    EXPECT_TRUE(metrics.front().contains(key)) << key;
  }
  const json pairs =
      metrics.front()["expert_pairs"];  // by layer and expert: 2 of each of 8 x 128 tokens
  ASSERT_EQ(pairs.size(), 2u);
  for (const json& layer : pairs) {
    const auto counts = layer.get<std::vector<int64_t>>();
    EXPECT_EQ(counts.size(), 4u);
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), 2048);
  }
  for (const char* command :
       {"train.steps=50", "weft generate --checkpoint ", "weft convert export "}) {
    EXPECT_NE(o.out.find(command), std::string::npos) << command;
  }
  const json record = json::parse(get_file(folder / "run/run.json"));
  EXPECT_EQ(record["data"].size(), 2u);  // .bin and .idx
  EXPECT_TRUE(std::filesystem::exists(folder / "run/tensorboard"));
}

// Untrained gates forget half of everything at each token: distant blocks are pruned, near ones are
// not.
TEST(Train, ReportsWhatPruningLeavesOut) {
  const ScratchFolder folder;
  const Outcome o = run_weft(
      tiny(make_corpus(folder), folder,
           {"train.steps=1", "train.sequence=512", "train.micro_batch=1", "model.layer.N.mixer=fox",
            "model.layer.N.acp=true", "model.layer.N.acp_log_epsilon=-1", "data.pack=false"}));
  ASSERT_EQ(o.code, 0) << o.err;
  const json pruned = metrics_of(folder).front()["acp_pruned"];
  ASSERT_EQ(pruned.size(), 1u);
  ASSERT_EQ(pruned[0].size(), 2u);
  for (const double share : pruned[0]) {
    EXPECT_GT(share, 0.0);
    EXPECT_LT(share, 1.0);
  }
}

TEST(Train, GivesTheSameBitsTwiceAndWithOtherThreads) {
  std::vector<std::vector<double>> losses;
  for (const char* threads : {"1", "1", "2"}) {
    const ScratchFolder folder;
    ASSERT_EQ(
        run_weft(tiny(make_corpus(folder), folder, {std::string("train.threads=") + threads})).code,
        0);
    losses.emplace_back();
    for (const json& line : metrics_of(folder)) losses.back().push_back(line["loss"].get<double>());
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
}

TEST(Train, StopsAtTheBorderOfAStepWhenAsked) {
  const ScratchFolder folder;
  Program program(tiny(make_corpus(folder), folder, {"train.steps=100000"}));
  ASSERT_TRUE(program.wait_for("3/100000  loss"));
  program.signal(SIGINT);
  const Outcome o = program.wait();
  EXPECT_EQ(o.code, 75) << o.err;
  EXPECT_NE(o.out.find("stopped on request after step"), std::string::npos);
  // Every line of the metrics is whole.
  EXPECT_GE(metrics_of(folder).size(), 3u);
}

struct Mistake {
  const char* name;
  std::vector<std::string> arguments;
  std::vector<std::string> message;  // parts of it
};

class TrainRefuses : public testing::TestWithParam<Mistake> {};

TEST_P(TrainRefuses, WithOneMessageAndCode2) {
  const ScratchFolder folder;
  const Outcome o = run_weft(tiny(make_corpus(folder), folder, GetParam().arguments));
  EXPECT_EQ(o.code, 2);
  for (const std::string& part : GetParam().message) {
    EXPECT_NE(o.err.find(part), std::string::npos) << part << "\n is not in\n" << o.err;
  }
  EXPECT_LE(std::count(o.err.begin(), o.err.end(), '\n'), 2) << o.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "run/metrics.jsonl"));
}

INSTANTIATE_TEST_SUITE_P(
    All, TrainRefuses,
    testing::Values(
        Mistake{"UnknownKey", {"train.step=3"}, {"train.step", "steps"}},
        Mistake{"WrongType", {"model.hidden=wide"}, {"model.hidden", "integer"}},
        Mistake{"OutOfRange", {"optimizer.lr=-1"}, {"optimizer.lr", "-1"}},
        Mistake{"MissingFile", {"data.train=[\"/nowhere/corpus\"]"}, {"/nowhere/corpus"}},
        Mistake{"TokenBeyondVocabulary", {"model.vocab=80"}, {"corpus.bin", "80"}},
        Mistake{"MissingValidation",
                {"data.valid=[\"/nowhere/held\"]"},
                {"data.valid", "/nowhere/held"}},
        Mistake{"TooLittleData",
                {"train.sequence=100000"},
                {"command line", "100001", "nearest: train.sequence = 11999"}},
        Mistake{"TooManyTokens", {"train.global_batch=33554432"}, {"global_batch", "16777212"}},
        Mistake{"UnknownMixer", {"model.layer.L.mixer=retnett"}, {"retnett", "retnet"}},
        Mistake{"OptionOfAnotherMixer", {"model.layer.L.window=3"}, {"window"}},
        Mistake{"IndivisibleHeads", {"model.layer.L.heads=7"}, {"heads = 7", "divide"}},
        Mistake{"MoreActiveThanExperts", {"model.moe.active=99"}, {"99"}}),
    [](const auto& info) { return info.param.name; });

TEST(Train, RefusesATruncatedIndex) {
  const ScratchFolder folder;
  const std::string corpus = make_corpus(folder);
  std::filesystem::resize_file(corpus + ".idx", 100);
  const Outcome o = run_weft(tiny(corpus, folder));
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("corpus.idx"), std::string::npos) << o.err;
}

TEST(Train, GivesUpAfterThreeStepsThatAreNotFinite) {
  const ScratchFolder folder;
  // Weights overflow after the first update: every later step is skipped.
  const Outcome o = run_weft(tiny(make_corpus(folder), folder,
                                  {"train.steps=50", "optimizer.lr=1e30", "optimizer.clip=0"}));
  EXPECT_EQ(o.code, 3);
  EXPECT_NE(o.err.find("not finite"), std::string::npos) << o.err;
  EXPECT_TRUE(metrics_of(folder).back()["skipped"].get<bool>());
  EXPECT_EQ(metrics_of(folder).back()["step"], 4);
  // The resumed run continues to count them: the next one is the fourth.
  const Outcome again = run_weft(
      tiny(folder / "corpus", folder, {"train.steps=50", "optimizer.lr=1e30", "optimizer.clip=0"}));
  EXPECT_EQ(again.code, 3);
  EXPECT_NE(again.err.find("4 steps in a row"), std::string::npos) << again.err;
  EXPECT_EQ(metrics_of(folder).back()["step"], 5);
}

TEST(Train, NamesTheLayerAndTokenOfRouterLogitsThatAreNotFinite) {
  const ScratchFolder folder;
  // Infinite weights after the first update; the lines of skipped steps are printed for any
  // log_every.
  const Outcome o = run_weft(tiny(make_corpus(folder), folder,
                                  {"train.steps=50", "optimizer.lr=1e39", "optimizer.min_lr=1e38",
                                   "optimizer.clip=0", "train.log_every=50"}));
  EXPECT_EQ(o.code, 3);
  const char* named = "router logits of layer 0 are not finite, first at token 0 of sample 8";
  EXPECT_NE(o.out.find("step     2/50"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find(named), std::string::npos) << o.out;
  EXPECT_NE(get_file(folder / "run/log.txt").find(named), std::string::npos);
}

// Accounted memory equals the growth of the process's memory within 10 %.
TEST(BenchStep, TakesTheMemoryItAccountsFor) {
  for (const char* precision : {"f32", "bf16"}) {
    const ScratchFolder folder;
    const Outcome o = run_weft({"bench", "step", in_project("configs/quickstart.toml"),
                                std::string("train.precision=") + precision, "train.micro_batch=4",
                                "--steps", "2", "--warmup", "1", "--json", folder / "step.json"});
    ASSERT_EQ(o.code, 0) << o.err;
    const json result = json::parse(get_file(folder / "step.json"));
    const double accounted = result["peak_bytes"],
                 taken = result["peak_resident_bytes"].get<double>() -
                         result["resident_bytes_before"].get<double>();
    EXPECT_NEAR(accounted / taken, 1.0, 0.1)
        << precision << ": accounted " << accounted << ", taken " << taken;
    EXPECT_EQ(result["losses"].size(), 3u);
    EXPECT_GT(result["step_ms"]["median"].get<double>(), 0.0);
  }
}

}  // namespace
}  // namespace weft::test
