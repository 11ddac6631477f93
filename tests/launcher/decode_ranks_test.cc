// A checkpoint's model on several ranks gives the texts, losses and logits of one rank: ranks as
// threads, then as processes, as a user starts them.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>

#include "core/files/safetensors.h"
#include "launcher/eval/scorer.h"
#include "launcher/generate/generator.h"
#include "launcher/generate/model_ranks.h"
#include "parallel/comm/thread_comm.h"
#include "tests/support/mpirun_fixture.h"
#include "tests/support/near.h"
#include "tests/support/random_model.h"

namespace weft::test {
namespace {

// Neither the vocabulary nor the feed-forward widths divide by the ranks, and one kv head is shared
// by all. With capacity limits, tokens would depend on their neighbours.
constexpr const char* kModel = R"(
[model]
vocab = 261
hidden = 32
layers = 6
pattern = "LGNFRM"
tie_embeddings = true
[model.layer.L]
mixer = "lightning"
heads = 4
joint_norm = true
[model.layer.G]
mixer = "gated_deltanet"
heads = 4
[model.layer.N]
mixer = "softmax"
heads = 4
kv_heads = 1
window = 7
qk_norm = true
qk_norm_joint = true
[model.layer.F]
mixer = "fox"
heads = 4
pro = true
ffn = "dense"
[model.layer.R]
mixer = "rwkv7"
heads = 4
ffn = "none"
[model.layer.M]
mixer = "mamba2"
heads = 4
state = 4
[model.dense]
ffn = 53
[model.moe]
experts = 4
active = 2
ffn = 24
shared = 1
shared_gate = true
capacity = 1.0
[data]
train = ["none"]
[train]
precision = "f32"
[parallel]
pipe = 2
)";

std::vector<int32_t> some_tokens(int count, int factor) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * i * factor + 3 * i) % 251);
  return tokens;
}

struct Seen {
  std::vector<std::vector<int32_t>> tokens;     // of every sequence
  std::vector<std::vector<TokenScore>> scores;  // of every text
};

struct RankCase {
  int ranks;
  std::vector<std::string> layout;
};

class DecodeRanks : public testing::TestWithParam<RankCase> {
 protected:
  static inline const std::vector<std::vector<int32_t>> kPrompts = {
      some_tokens(41, 3), some_tokens(1, 5), some_tokens(530, 11)};  // more than one chunk

  // Text t is scored by data rank t modulo 2, in every layout, and by all ranks if there is one
  // data rank.
  Seen run(int ranks, const std::vector<std::string>& layout) {
    const FoundCheckpoint found = open_checkpoint(saved_.path());
    Config config = under_layout(found, layout);
    config.train.micro_batch = 1, config.train.global_batch = ranks;
    Seen first;
    first.scores.resize(3);
    std::mutex mutex;
    run_ranks(ranks, [&](ThreadComm& world, Exec&) {
      Runtime runtime(1);
      const Splitter split = [&](int color, int key, const std::string& axis) {
        return world.split(color, key, axis);
      };
      const auto mesh = std::make_shared<const Mesh>(make_layout(config, world.rank(), ranks),
                                                     split, Signatures::kCompare);
      const LoadedModel model(runtime, found, DType::kF32, mesh);
      Generator generator(runtime.exec(), model, {.temperature = 0}, kPrompts);
      std::vector<std::vector<int32_t>> mine(kPrompts.size());
      for (int i = 0; i < 8; ++i) {
        const std::vector<int32_t> next = generator.next();
        for (size_t s = 0; s < next.size(); ++s) mine[s].push_back(next[s]);
        if (i == 3) generator.stop(2);
      }
      const auto [data, count] = mesh->here()[Axis::kData];
      std::vector<ScoredText> texts;
      std::vector<size_t> which;
      for (size_t t = 0; t < kPrompts.size(); ++t) {
        if (static_cast<int>(t) % count != data) continue;
        texts.push_back({kPrompts[t], 1});
        which.push_back(t);
      }
      const auto scores = score(runtime.exec(), model, texts);
      const std::lock_guard lock(mutex);
      if (first.tokens.empty()) first.tokens = mine;
      EXPECT_EQ(mine, first.tokens) << "rank " << world.rank();
      for (size_t i = 0; i < which.size(); ++i) first.scores[which[i]] = scores[i];
    });
    return first;
  }

  Runtime runtime_{1};
  RandomModel saved_{runtime_, kModel};
};

TEST_P(DecodeRanks, GiveTheTokensAndLossesOfOne) {
  const Seen one = run(1, {}), many = run(GetParam().ranks, GetParam().layout);
  EXPECT_EQ(many.tokens, one.tokens);
  EXPECT_EQ(one.tokens[2][7], -1);  // stopped
  for (size_t t = 0; t < kPrompts.size(); ++t) {
    ASSERT_EQ(many.scores[t].size(), one.scores[t].size());
    for (size_t i = 0; i < one.scores[t].size(); ++i) {
      // Sums of some hundred f32 numbers in another order, through six layers.
      const double want = one.scores[t][i].loss;
      ASSERT_NEAR(many.scores[t][i].loss, want, 2e-4 * (1 + want)) << t << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, DecodeRanks,
    testing::Values(RankCase{2, {"parallel.tensor=2"}}, RankCase{4, {"parallel.tensor=4"}},
                    RankCase{2, {}}, RankCase{2, {"parallel.expert=2"}},
                    RankCase{2, {"parallel.expert_tensor=2"}},
                    RankCase{2, {"parallel.tensor=2", "parallel.expert=2"}},
                    RankCase{4, {"parallel.tensor=2", "parallel.expert=4"}},
                    RankCase{4,
                             {"parallel.tensor=2", "parallel.expert=2", "parallel.expert_tensor=2",
                              "parallel.deduplicate=false"}},
                    RankCase{4, {"parallel.expert=4"}}),
    [](const auto& info) {
      std::string name = std::to_string(info.param.ranks) + "_ranks";
      for (const std::string& text : info.param.layout) name += "_" + text.substr(9);
      for (char& c : name) {
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
      }
      return name;
    });

class DecodeCommands : public Mpirun {
 protected:
  std::vector<std::string> with(std::vector<std::string> arguments,
                                const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), {"--checkpoint", saved.path()});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  nlohmann::json json_of(int ranks, const std::vector<std::string>& arguments) {
    std::vector<std::string> all = with(arguments, {"--json", folder / "out.json"});
    const Outcome o = ranks == 1 ? run_weft(all) : run_ranked(ranks, all);
    EXPECT_EQ(o.code, 0) << o.err;
    return nlohmann::json::parse(get_file(folder / "out.json"));
  }

  Runtime runtime{1};
  RandomModel saved{runtime, kModel};
};

TEST_F(DecodeCommands, GenerateWritesTheTextOfOneRank) {
  put_file(folder / "prompt", "a long way");
  const std::vector<std::string> all = {
      "generate",        "--prompt", "abc", "--prompt", "The", "--file",
      folder / "prompt", "--tokens", "12",  "--seed",   "3",   "--endless"};
  const nlohmann::json one = json_of(1, all);
  auto cut = all;
  cut.push_back("parallel.tensor=2");
  const nlohmann::json tensor = json_of(2, cut);
  EXPECT_EQ(tensor["texts"], one["texts"]);
  EXPECT_EQ(tensor["tokens"], one["tokens"]);
  EXPECT_LT(tensor["state_bytes"].get<int64_t>(), one["state_bytes"].get<int64_t>());
  const nlohmann::json shared = json_of(2, all);  // prompts on both ranks
  EXPECT_EQ(shared["texts"], one["texts"]);

  // A stop string ends the text on all ranks. Bytes that are no UTF-8 are shown as another
  // character: the string is a plain one, not the first.
  const std::string text = one["texts"][0];
  size_t at = 1;
  while (at < text.size() &&
         (static_cast<unsigned char>(text[at]) >= 0x80 || text.find(text[at]) != at)) {
    ++at;
  }
  ASSERT_LT(at, text.size()) << text;
  const nlohmann::json stopped =
      json_of(2, {"generate", "--prompt", "abc", "--tokens", "12", "--seed", "3", "--endless",
                  "--stop", text.substr(at, 1), "parallel.tensor=2"});
  EXPECT_EQ(stopped["texts"][0], text.substr(0, at));
}

TEST_F(DecodeCommands, EvaluationsGiveTheNumbersOfOneRank) {
  const std::vector<std::string> eval = {
      "eval", "perplexity", "--data", folder / "corpus", "--sequence", "48", "--max-tokens", "700"};
  const nlohmann::json one = json_of(1, eval);
  for (const std::vector<std::string>& layout :
       std::vector<std::vector<std::string>>{{}, {"parallel.tensor=2"}, {"parallel.expert=2"}}) {
    auto arguments = eval;
    arguments.insert(arguments.end(), layout.begin(), layout.end());
    const nlohmann::json many = json_of(2, arguments);
    if (layout.empty()) {
      EXPECT_EQ(many.dump(), one.dump());  // equal bits
    }
    EXPECT_EQ(many["tokens"], one["tokens"]);
    EXPECT_NEAR(many["loss"].get<double>(), one["loss"].get<double>(), 2e-5);
  }
}

TEST_F(DecodeCommands, LogitsAreThoseOfOneRank) {
  std::vector<int32_t> ids = some_tokens(60, 7);
  write_safetensors(folder / "ids.st", {},
                    {{"tokens", Tensor::borrow(ids.data(), {2, 30}, DType::kI32)}});
  const auto logits = [&](int ranks, const std::string& out, std::vector<std::string> layout) {
    std::vector<std::string> all =
        with({"eval", "logits", "--tokens", folder / "ids.st", "--out", folder / out}, layout);
    const Outcome o = ranks == 1 ? run_weft(all) : run_ranked(ranks, all);
    EXPECT_EQ(o.code, 0) << o.err;
  };
  logits(1, "one.st", {});
  logits(2, "two.st", {"parallel.tensor=2", "parallel.expert=2"});
  EXPECT_TRUE(Near(SafetensorsFile(folder / "two.st").view("logits"),
                   SafetensorsFile(folder / "one.st").view("logits"), 1e-4));
}

TEST_F(DecodeCommands, RefuseWhatCannotDecodeOnAllRanksTogether) {
  const auto refused = [&](int ranks, const std::vector<std::string>& more) {
    const auto arguments = with({"generate", "--tokens", "3"}, more);
    const Outcome o = ranks == 1 ? run_weft(arguments) : run_ranked(ranks, arguments);
    EXPECT_EQ(o.code, 2) << o.out << o.err;
    return o.err;
  };
  const auto expect_parts = [](const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in:\n" << text;
    }
  };
  expect_parts(refused(1, {"--prompt", "a", "parallel.pipe=2"}),
               {"command line", "parallel.pipe = 2", "parallel.tensor"});
  expect_parts(refused(1, {"--prompt", "a", "parallel.sequence=2"}), {"parallel.sequence = 2"});
  expect_parts(refused(1, {"--prompt", "a", "model.hidden=64"}), {"model.hidden=64", "layout"});
  expect_parts(refused(1, {"--prompt", "a", "parallel.tensor=2"}), {"tensor 2", "-n 2"});
  expect_parts(refused(2, {"--prompt", "a", "parallel.expert=3"}), {"parallel.expert"});
  // Only the first rank reads the file; all ranks end.
  put_file(folder / "bytes", "a\xff");
  expect_parts(refused(2, {"--file", folder / "bytes", "parallel.tensor=2"}),
               {"byte 1 (0xff) is not UTF-8"});
}

}  // namespace
}  // namespace weft::test
