// The layout promise: one model with a mixer of every family, experts with a shared one, packed
// documents and tied embeddings, trained under every kind of layout of 1 to 8 ranks (and one of 16
// with all axes) as threads, gives the losses, norms and weights of one rank. Neither vocabulary,
// tokens nor widths divide by the ranks.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/rank_training.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

Config families(const std::vector<std::string>& overrides) {
  return config_from_text(R"(
[model]
vocab = 61
hidden = 32
layers = 8
pattern = "ABCDEFGH"
tie_embeddings = true
[model.layer.A]
mixer = "retnet"
heads = 4
[model.layer.B]
mixer = "gla"
heads = 4
ffn = "dense"
[model.layer.C]
mixer = "mamba"
state = 4
ffn = "none"
[model.layer.D]
mixer = "gated_deltanet"
heads = 4
[model.layer.E]
mixer = "rwkv7"
heads = 4
ffn = "none"
[model.layer.F]
mixer = "softmax"
heads = 4
kv_heads = 2
[model.layer.G]
mixer = "fox"
heads = 4
ffn = "none"
[model.layer.H]
mixer = "mom"
heads = 4
[model.dense]
ffn = 53
[model.moe]
experts = 12
active = 3
ffn = 20
shared = 1
aux_loss = 0.01
z_loss = 0.001
[train]
steps = 10
sequence = 23
global_batch = 12
micro_batch = 1
precision = "f32"
[optimizer]
lr = 1e-3
warmup = 0
schedule = "constant"
eps = 1e-3
[run]
dir = "unused"
)",
                          "families.toml", overrides);
}

struct Degrees {
  int tensor = 1, sequence = 1, pipe = 1, data = 1, expert = 1, expert_tensor = 1, zero = 1;
  const char* schedule = "1f1b";
  int virtual_stages = 1;

  int ranks() const { return tensor * sequence * pipe * data; }
  std::string name() const {
    return fmt::format(
        "tensor {} x sequence {} x pipe {} ({}, {}) x data {}, expert {} x {}, zero {}", tensor,
        sequence, pipe, schedule, virtual_stages, data, expert, expert_tensor, zero);
  }
  std::vector<std::string> overrides() const {
    const auto set = [](const char* key, auto value) {
      return fmt::format("parallel.{}={}", key, value);
    };
    return {set("tensor", tensor),
            set("sequence", sequence),
            set("pipe", pipe),
            set("expert", expert),
            set("expert_tensor", expert_tensor),
            set("zero", zero),
            set("schedule", schedule),
            set("virtual_stages", virtual_stages)};
  }
};

History train(const Degrees& degrees, std::vector<std::string> overrides) {
  for (const std::string& o : degrees.overrides()) overrides.push_back(o);
  return train_on_ranks(families(overrides), degrees.ranks(), rule_batch);
}

void expect_same_bits(const History& got, const History& want, const std::string& what) {
  for (size_t s = 0; s < want.steps.size(); ++s) {
    EXPECT_EQ(got.steps[s].loss, want.steps[s].loss) << what << " step " << s;
    EXPECT_EQ(got.steps[s].grad_norm, want.steps[s].grad_norm) << what << " step " << s;
  }
  EXPECT_EQ(got.weights, want.weights) << what;
}

class Layouts : public testing::Test {
 protected:
  void expect_promise(const std::vector<Degrees>& layouts) {
    const std::string file = folder_ / "routing.safetensors";
    const History one = train({}, {"run.routing_trace=write:" + file});
    for (const Degrees& degrees : layouts) {
      const History many = train(degrees, {"run.routing_trace=replay:" + file});
      expect_same_training(many, one, degrees.name());
    }
  }
  ScratchFolder folder_;
};

TEST_F(Layouts, OfTwoRanks) {
  expect_promise({{.tensor = 2},
                  {.sequence = 2},
                  {.pipe = 2, .schedule = "gpipe"},
                  {.pipe = 2},
                  {.pipe = 2, .schedule = "zero_bubble"},
                  {.pipe = 2, .schedule = "interleaved", .virtual_stages = 2},
                  {.data = 2, .zero = 0},
                  {.data = 2},
                  {.data = 2, .expert = 2},
                  {.tensor = 2, .expert = 2},
                  {.sequence = 2, .expert = 2},
                  {.data = 2, .expert_tensor = 2}});
}

TEST_F(Layouts, OfThreeRanks) {
  expect_promise({{.sequence = 3}, {.data = 3}, {.data = 3, .expert = 3, .zero = 0}, {.pipe = 3}});
}

TEST_F(Layouts, OfFourRanks) {
  expect_promise({{.tensor = 4},
                  {.sequence = 4},
                  {.pipe = 4},
                  {.pipe = 4, .schedule = "zero_bubble"},
                  {.data = 4, .expert = 4},
                  {.data = 4, .expert = 2},
                  {.tensor = 2, .sequence = 2},
                  {.tensor = 2, .pipe = 2},
                  {.tensor = 2, .data = 2},
                  {.sequence = 2, .pipe = 2},
                  {.sequence = 2, .data = 2},
                  {.pipe = 2, .data = 2}});
}

TEST_F(Layouts, OfFourRanksWithExperts) {
  expect_promise(
      {{.tensor = 2, .data = 2, .expert = 4},
       {.tensor = 2, .data = 2, .expert = 2, .expert_tensor = 2},
       {.sequence = 2, .data = 2, .expert = 2, .zero = 0},
       {.pipe = 2, .data = 2, .expert = 2},
       {.tensor = 2, .pipe = 2, .expert = 2},
       {.sequence = 2, .pipe = 2, .expert = 2, .schedule = "interleaved", .virtual_stages = 2}});
}

TEST_F(Layouts, OfSixRanks) {
  expect_promise({{.tensor = 2, .sequence = 3},
                  {.sequence = 3, .data = 2, .expert = 6},
                  {.pipe = 3, .data = 2, .expert = 2},
                  {.pipe = 2, .data = 3, .expert = 3},
                  {.tensor = 2, .pipe = 3, .expert = 2, .schedule = "gpipe"}});
}

TEST_F(Layouts, OfEightRanksAndSixteen) {
  expect_promise({{.tensor = 2, .sequence = 2, .data = 2, .expert = 2},
                  {.tensor = 2, .sequence = 2, .pipe = 2, .expert = 4},
                  {.tensor = 2, .pipe = 2, .data = 2, .expert = 2, .expert_tensor = 2},
                  {.sequence = 2, .pipe = 2, .data = 2, .expert = 4, .schedule = "zero_bubble"},
                  {.tensor = 2, .sequence = 2, .pipe = 2, .data = 2, .expert = 2}});
}

// Pipeline degree and schedule change no bit; and what a layout gives, it gives again.
TEST_F(Layouts, OfStagesAloneChangeNoBit) {
  const History one = train({}, {"train.steps=4"});
  for (const Degrees& degrees :
       {Degrees{.pipe = 2}, Degrees{.pipe = 3, .schedule = "gpipe"},
        Degrees{.pipe = 4, .schedule = "zero_bubble"},
        Degrees{.pipe = 2, .schedule = "interleaved", .virtual_stages = 2}}) {
    expect_same_bits(train(degrees, {"train.steps=4"}), one, degrees.name());
  }
  const Degrees all{.tensor = 2, .sequence = 2, .pipe = 2, .expert = 2};
  expect_same_bits(train(all, {"train.steps=4"}), train(all, {"train.steps=4"}), all.name());
}

// bf16 rounds what it multiplies to three digits: curves stay within half a percent over 50 steps.
TEST_F(Layouts, InBf16FollowTheLossesOfOneRank) {
  const std::vector<std::string> bf16 = {"train.precision=bf16", "train.steps=50",
                                         "train.global_batch=4"};
  const History one = train({}, bf16);
  for (const Degrees& degrees :
       {Degrees{.tensor = 2, .sequence = 2}, Degrees{.pipe = 2, .data = 2, .expert = 2}}) {
    const History many = train(degrees, bf16);
    for (size_t s = 0; s < one.steps.size(); ++s) {
      ASSERT_NEAR(many.steps[s].loss, one.steps[s].loss, 5e-3 * one.steps[s].loss)
          << degrees.name() << " step " << s;
    }
  }
}

}  // namespace
}  // namespace weft::test
