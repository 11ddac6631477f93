// Tensor parallelism in training, with ranks as threads: a hybrid of mixers of all families,
// experts with a shared one, packed documents, tied embeddings; alone and with sequence and data
// ranks. Neither the vocabulary nor the tokens nor the feed-forward widths divide by the ranks.
#include <gtest/gtest.h>

#include "tests/support/rank_training.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

Config tiny(const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> all = {"train.sequence=29", "train.global_batch=4",
                                  "train.micro_batch=2"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return tiny_config(R"(
[model]
vocab = 61
hidden = 32
layers = 10
pattern = "ABCDEFGHIE"
tie_embeddings = true
[model.layer.A]
mixer = "retnet"
heads = 4
[model.layer.B]
mixer = "softmax"
heads = 4
kv_heads = 2
ffn = "dense"
[model.layer.C]
mixer = "hgrn2"
heads = 4
lower_bounds = "shared"
ffn = "none"
[model.layer.D]
mixer = "gated_deltanet"
heads = 4
[model.layer.E]
mixer = "rwkv7"
heads = 4
ffn = "none"
[model.layer.F]
mixer = "mamba"
state = 4
ffn = "none"
[model.layer.G]
mixer = "mamba2"
heads = 4
state = 4
ffn = "none"
[model.layer.H]
mixer = "fox"
heads = 4
acp = true
ffn = "none"
[model.layer.I]
mixer = "mom"
heads = 4
[model.dense]
ffn = 53
[model.moe]
experts = 5
active = 2
ffn = 20
shared = 1
shared_gate = true
aux_loss = 0.01
z_loss = 0.001
)",
                     all);
}

History train(const Config& config, int ranks) {
  return train_on_ranks(config, ranks, packed_batch);
}

struct Case {
  int tensor, sequence, data;
  std::vector<std::string> more = {};
  int ranks() const { return tensor * sequence * data; }
  std::vector<std::string> with(std::vector<std::string> overrides) const {
    overrides.insert(overrides.end(), more.begin(), more.end());
    return overrides;
  }
};

class TensorRanks : public testing::TestWithParam<Case> {};

// Experts are chosen as on one rank.
TEST_P(TensorRanks, GiveTheLossesNormsAndWeightsOfOneRank) {
  const ScratchFolder folder;
  const std::string file = folder / "routing.safetensors";
  const Case& c = GetParam();
  const History one = train(tiny(c.with({"run.routing_trace=write:" + file})), 1);
  const History many = train(tiny(c.with({"run.routing_trace=replay:" + file,
                                          "parallel.tensor=" + std::to_string(c.tensor),
                                          "parallel.sequence=" + std::to_string(c.sequence)})),
                             c.ranks());
  expect_same_training(many, one, "tensor ranks");
  for (size_t s = 0; s < one.steps.size(); ++s) {
    const StepResult &a = one.steps[s], &b = many.steps[s];
    ASSERT_EQ(a.pruning.size(), b.pruning.size());
    for (size_t l = 0; l < a.pruning.size(); ++l) {
      ASSERT_EQ(a.pruning[l].heads.size(), b.pruning[l].heads.size());
      if (c.sequence > 1) continue;  // blocks end with the spans
      for (size_t h = 0; h < a.pruning[l].heads.size(); ++h) {
        EXPECT_EQ(a.pruning[l].heads[h].causal, b.pruning[l].heads[h].causal);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, TensorRanks,
    testing::Values(Case{2, 1, 1}, Case{2, 1, 1, {"model.moe.aux_scope=sequence"}},
                    Case{2, 1, 1, {"model.tie_embeddings=false", "train.micro_batch=1"}},
                    Case{2, 1, 1, {"model.moe.aux_scope=global_batch", "train.recompute=full"}},
                    Case{2, 2, 1, {"model.moe.aux_scope=sequence", "train.recompute=selective"}},
                    Case{2, 1, 2, {"parallel.zero=1"}}, Case{4, 1, 1},
                    // Fewer tokens in a micro-batch than tensor x sequence ranks.
                    Case{4, 2, 1, {"train.sequence=7", "train.micro_batch=1"}}),
    [](const auto& info) {
      return fmt::format("{}_tensor_{}_sequence_{}_data_{}", info.index, info.param.tensor,
                         info.param.sequence, info.param.data);
    });

// bf16 rounds factors to 3 digits: curves stay within half a percent.
TEST(TensorRanksInBf16, FollowTheLossesOfOneRank) {
  const std::vector<std::string> bf16 = {"train.precision=bf16", "train.steps=8"};
  const History one = train(tiny(bf16), 1);
  for (const int sequence : {1, 2}) {
    std::vector<std::string> more = bf16;
    more.insert(more.end(), {"parallel.tensor=2", "parallel.sequence=" + std::to_string(sequence)});
    const History many = train(tiny(more), 2 * sequence);
    for (size_t s = 0; s < one.steps.size(); ++s) {
      EXPECT_NEAR(one.steps[s].loss, many.steps[s].loss, 5e-3 * one.steps[s].loss) << s;
    }
  }
}

TEST(TensorRanksTwice, GiveTheSameBits) {
  const Config config = tiny({"parallel.tensor=2", "train.steps=2"});
  const History a = train(config, 2), b = train(config, 2);
  expect_same_bits(a, b, "twice");
}

}  // namespace
}  // namespace weft::test
