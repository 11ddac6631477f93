// parallel.overlap changes no bit of a run, under any layout: what travels early or is waited for
// late is the same numbers in the same order.
#include <gtest/gtest.h>

#include "tests/support/rank_training.h"

namespace weft::test {
namespace {

struct Case {
  std::string name;
  int ranks;
  std::vector<std::string> overrides;
};

void expect_same_bits(const History& got, const History& want) {
  ASSERT_EQ(got.steps.size(), want.steps.size());
  for (size_t s = 0; s < want.steps.size(); ++s) {
    EXPECT_EQ(got.steps[s].loss, want.steps[s].loss) << s;
    EXPECT_EQ(got.steps[s].grad_norm, want.steps[s].grad_norm) << s;
  }
  EXPECT_EQ(got.valid, want.valid);
  EXPECT_EQ(got.weights, want.weights);
}

class OverlapOnRanks : public testing::TestWithParam<Case> {};

TEST_P(OverlapOnRanks, ChangesNoBit) {
  std::vector<std::string> overrides = GetParam().overrides;
  overrides.insert(overrides.end(), {"train.steps=3", "model.moe.experts=6"});
  const auto train = [&](const char* overlap) {
    auto all = overrides;
    all.push_back(std::string("parallel.overlap=") + overlap);
    return train_on_ranks(tiny_hybrid(all), GetParam().ranks, packed_batch);
  };
  expect_same_bits(train("true"), train("false"));
}

std::vector<Case> cases() {
  const auto p = [](const char* key) { return std::string("parallel.") + key; };
  return {
      {"data", 3, {}},
      {"data_whole", 2, {p("zero=0")}},
      {"data_bf16", 2, {"train.precision=bf16"}},
      {"sequence", 2, {p("sequence=2")}},
      {"expert", 2, {p("expert=2")}},
      {"expert_bf16", 2, {p("expert=2"), "train.precision=bf16"}},
      {"expert_width", 4, {p("expert=2"), p("expert_tensor=2")}},
      {"expert_once_per_expert", 2, {p("expert=2"), p("deduplicate=false")}},
      {"expert_recomputed", 2, {p("expert=2"), "train.recompute=full"}},
      {"expert_within_data", 4, {p("expert=2")}},
      {"tensor", 2, {p("tensor=2"), "model.layer.L.heads=4", "model.layer.D.heads=4"}},
      {"tensor_bf16",
       2,
       {p("tensor=2"), "model.layer.L.heads=4", "model.layer.D.heads=4", "train.precision=bf16"}},
      {"tensor_recomputed",
       2,
       {p("tensor=2"), "model.layer.L.heads=4", "model.layer.D.heads=4",
        "train.recompute=selective"}},
      {"tensor_expert_data",
       4,
       {p("tensor=2"), p("expert=2"), "model.layer.L.heads=4", "model.layer.D.heads=4"}},
      {"pipe_data", 4, {p("pipe=2")}},
      {"zero_bubble_expert", 4, {p("pipe=2"), p("schedule=zero_bubble"), p("expert=2")}},
      {"zero_bubble_tensor",
       4,
       {p("pipe=2"), p("schedule=zero_bubble"), p("tensor=2"), "model.layer.L.heads=4",
        "model.layer.D.heads=4"}},
      {"interleaved_data",
       4,
       {p("pipe=2"), p("schedule=interleaved"), p("virtual_stages=2"), "model.layers=4",
        "model.pattern=LNDL"}},
  };
}

INSTANTIATE_TEST_SUITE_P(All, OverlapOnRanks, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::test
