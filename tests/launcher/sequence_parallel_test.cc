// Sequence parallelism in training, with ranks as threads: a hybrid of every family of mixers under
// spans that differ in length, documents that cross them, together with data ranks.
#include <gtest/gtest.h>

#include "tests/support/rank_training.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

// One mixer of each family: factor per head, per channel, two-sided, complex, delta, diagonal plus
// rank one, elementwise, slots, softmax, forgetting, memories.
Config tiny(const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> all = {"train.sequence=29", "train.global_batch=4",
                                  "train.micro_batch=2"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return tiny_config(R"(
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
)",
                     all);
}

History train(const Config& config, int ranks) {
  return train_on_ranks(config, ranks, packed_batch);
}

struct Shape2 {
  int sequence, data;
};

class SequenceRanks : public testing::TestWithParam<Shape2> {};

// Experts are chosen as on one rank.
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
    expect_same_training(many, one, scope);
  }
}

TEST_P(SequenceRanks, RecomputeTheSame) {
  const auto [sequence, data] = GetParam();
  const std::string ranks = "parallel.sequence=" + std::to_string(sequence);
  const History plain = train(tiny({ranks}), sequence * data);
  for (const char* mode : {"selective", "full"}) {
    const History again =
        train(tiny({ranks, std::string("train.recompute=") + mode}), sequence * data);
    expect_same_bits(again, plain, mode);
  }
}

TEST_P(SequenceRanks, GiveTheSameBitsHoweverStatesTravel) {
  const auto [sequence, data] = GetParam();
  const std::string ranks = "parallel.sequence=" + std::to_string(sequence);
  const History plain = train(tiny({ranks, "parallel.overlap=false"}), sequence * data);
  const std::string scan = "parallel.sequence_exchange=scan";
  expect_same_bits(train(tiny({ranks}), sequence * data), plain, "gather, overlapped");
  expect_same_bits(train(tiny({ranks, scan}), sequence * data), plain, "scan, overlapped");
  expect_same_bits(
      train(tiny({ranks, scan, "parallel.overlap=false", "train.recompute=full"}), sequence * data),
      plain, "scan, recomputed");
}

INSTANTIATE_TEST_SUITE_P(All, SequenceRanks,
                         testing::Values(Shape2{2, 1}, Shape2{3, 1}, Shape2{2, 2}),
                         [](const auto& info) {
                           return "sequence_" + std::to_string(info.param.sequence) + "_data_" +
                                  std::to_string(info.param.data);
                         });

}  // namespace
}  // namespace weft::test
