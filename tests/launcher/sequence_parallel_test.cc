// Sequence parallelism in training, with ranks as threads: a hybrid of every family of mixers under
// spans that differ in length, documents that cross them, together with data ranks.
#include <gtest/gtest.h>

#include "launcher/trainer.h"
#include "parallel/thread_comm.h"
#include "tests/support/near.h"
#include "tests/support/rank_training.h"
#include "tests/support/rig.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

// One mixer of each family: factor per head, per channel, two-sided, complex, delta, diagonal plus
// rank one, elementwise, slots, softmax, forgetting, memories. With an epsilon of 1e-3 Adam does
// not turn the sign of a gradient that is almost zero into a whole step.
Config tiny(const std::vector<std::string>& overrides = {}) {
  return config_from_text(R"(
[model]
vocab = 61
hidden = 32
layers = 11
pattern = "ABCDEFGHIJK"
tie_embeddings = true
[model.layer.A]
mixer = "retnet"
heads = 2
[model.layer.B]
mixer = "gla"
heads = 2
ffn = "dense"
[model.layer.C]
mixer = "gfw"
heads = 2
ffn = "none"
[model.layer.D]
mixer = "gateloop"
heads = 2
ffn = "none"
[model.layer.E]
mixer = "gated_deltanet"
heads = 2
[model.layer.F]
mixer = "rwkv7"
heads = 2
ffn = "none"
[model.layer.G]
mixer = "mamba"
state = 4
ffn = "none"
[model.layer.H]
mixer = "gsa"
heads = 2
ffn = "none"
[model.layer.I]
mixer = "softmax"
heads = 4
kv_heads = 2
window = 9
ffn = "dense"
[model.layer.J]
mixer = "fox"
heads = 2
pro = true
ffn = "none"
[model.layer.K]
mixer = "mom"
heads = 2
[model.moe]
experts = 5
active = 2
ffn = 20
shared = 1
aux_loss = 0.01
z_loss = 0.001
[train]
steps = 3
sequence = 29
global_batch = 4
micro_batch = 2
precision = "f32"
[optimizer]
lr = 1e-3
warmup = 0
schedule = "constant"
eps = 1e-3
[run]
dir = "unused"
)",
                          "tiny.toml", overrides);
}

History train(const Config& config, int ranks) { return train_on_ranks(config, ranks, packed_batch); }

struct Shape2 {
  int sequence, data;
};

class SequenceRanks : public testing::TestWithParam<Shape2> {};

// Sums are formed in another order: some hundred roundings of 6e-8, which three steps of Adam
// amplify by at most lr / epsilon each. The experts are those that one rank chose.
TEST_P(SequenceRanks, GiveTheLossesNormsAndWeightsOfOneRank) {
  const ScratchFolder folder;
  const std::string file = folder / "routing.safetensors";
  const auto [sequence, data] = GetParam();
  for (const char* scope : {"micro_batch", "sequence"}) {
    const std::string aux = std::string("model.moe.aux_scope=") + scope;
    const History one = train(tiny({aux, "run.routing_trace=write:" + file}), 1);
    const History many = train(tiny({aux, "run.routing_trace=replay:" + file,
                                     "parallel.sequence=" + std::to_string(sequence)}),
                               sequence * data);
    for (size_t s = 0; s < one.steps.size(); ++s) {
      const StepResult &a = one.steps[s], &b = many.steps[s];
      EXPECT_NEAR(a.loss, b.loss, 3e-5 * a.loss) << scope << " step " << s;
      EXPECT_NEAR(a.grad_norm, b.grad_norm, 3e-4 * a.grad_norm) << scope << " step " << s;
      EXPECT_NEAR(a.aux_loss, b.aux_loss, 3e-5 * a.aux_loss) << scope << " step " << s;
      EXPECT_NEAR(a.z_loss, b.z_loss, 3e-4 * a.z_loss) << scope << " step " << s;
      for (size_t l = 0; l < a.moe.size(); ++l) EXPECT_EQ(a.moe[l].counts, b.moe[l].counts);
    }
    EXPECT_NEAR(one.valid, many.valid, 3e-5 * one.valid);
    const std::vector<double> w(one.weights.begin(), one.weights.end()),
        v(many.weights.begin(), many.weights.end());
    EXPECT_TRUE(Near(v, w, 3e-4)) << scope;
  }
}

TEST_P(SequenceRanks, RecomputeTheSame) {
  const auto [sequence, data] = GetParam();
  const std::string ranks = "parallel.sequence=" + std::to_string(sequence);
  const History plain = train(tiny({ranks}), sequence * data);
  for (const char* mode : {"selective", "full"}) {
    const History again =
        train(tiny({ranks, std::string("train.recompute=") + mode}), sequence * data);
    for (size_t s = 0; s < plain.steps.size(); ++s) {
      EXPECT_EQ(plain.steps[s].loss, again.steps[s].loss) << mode;
      EXPECT_EQ(plain.steps[s].aux_loss, again.steps[s].aux_loss) << mode;
    }
    EXPECT_EQ(plain.weights, again.weights) << mode;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SequenceRanks,
                         testing::Values(Shape2{2, 1}, Shape2{3, 1}, Shape2{2, 2}),
                         [](const auto& info) {
                           return "sequence_" + std::to_string(info.param.sequence) + "_data_" +
                                  std::to_string(info.param.data);
                         });

}  // namespace
}  // namespace weft::test
