// The layout promise: one model with a mixer of every family, experts with a shared one, packed
// documents and tied embeddings, trained under every kind of layout of 1 to 8 ranks (and one of 16
// with all axes) as threads, gives the losses, norms and weights of one rank. Neither vocabulary,
// tokens nor widths divide by the ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/rank_training.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

using Model = Config (*)(const std::vector<std::string>& overrides);

History train(const LayoutCase& layout, const std::vector<std::string>& overrides,
              Model model = family_hybrid) {
  std::vector<std::string> all = layout.overrides();
  all.insert(all.end(), overrides.begin(), overrides.end());
  return train_on_ranks(model(all), layout.ranks(), rule_batch);
}

class Layouts : public testing::Test {
 protected:
  void expect_promise(const std::vector<LayoutCase>& layouts, Model model = family_hybrid) {
    const std::string file = folder_ / "routing.safetensors";
    const History one = train({}, {"run.routing_trace=write:" + file}, model);
    for (const LayoutCase& layout : layouts) {
      const History many = train(layout, {"run.routing_trace=replay:" + file}, model);
      expect_same_training(many, one, layout.name());
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

TEST_F(Layouts, OfTheRarerFamilies) {
  expect_promise(
      {{.tensor = 2},
       {.sequence = 4},
       {.tensor = 2, .sequence = 2},
       {.sequence = 2, .pipe = 2, .schedule = "zero_bubble"},
       {.sequence = 3, .data = 2, .expert = 6},
       {.sequence = 2, .pipe = 2, .expert = 2, .schedule = "interleaved", .virtual_stages = 2},
       {.tensor = 2, .sequence = 2, .pipe = 2, .expert = 4}},
      rarer_hybrid);
}

// Pipeline degree and schedule change no bit, and runs of a layout are reproducible.
TEST_F(Layouts, OfStagesAloneChangeNoBit) {
  const History one = train({}, {"train.steps=4"});
  for (const LayoutCase& layout :
       {LayoutCase{.pipe = 2}, LayoutCase{.pipe = 3, .schedule = "gpipe"},
        LayoutCase{.pipe = 4, .schedule = "zero_bubble"},
        LayoutCase{.pipe = 2, .schedule = "interleaved", .virtual_stages = 2}}) {
    expect_same_bits(train(layout, {"train.steps=4"}), one, layout.name());
  }
  const LayoutCase all{.tensor = 2, .sequence = 2, .pipe = 2, .expert = 2};
  expect_same_bits(train(all, {"train.steps=4"}), train(all, {"train.steps=4"}), all.name());
}

// The smallest margin of a choice of experts or memories in a step.
double smallest_margin(const StepResult& step) {
  double least = std::numeric_limits<double>::infinity();
  for (const MoeReport& moe : step.moe) least = std::min(least, moe.margin);
  return least;
}

bool same_loads(const StepResult& a, const StepResult& b) {
  return std::equal(a.moe.begin(), a.moe.end(), b.moe.begin(), b.moe.end(),
                    [](const MoeReport& x, const MoeReport& y) { return x.counts == y.counts; });
}

// With free routing a near tie may resolve differently. Until then losses equal those of one rank
// within rounding; from then on within half a percent. The test prints the margins.
TEST_F(Layouts, OfFreeRoutingFollowTheLossesOfOneRank) {
  const History one = train({}, {});
  double least = std::numeric_limits<double>::infinity();
  for (const StepResult& step : one.steps) least = std::min(least, smallest_margin(step));
  RecordProperty("smallest_margin", fmt::format("{:.3g}", least));
  EXPECT_TRUE(std::isfinite(least) && least >= 0) << least;
  for (const LayoutCase& layout :
       {LayoutCase{.tensor = 2, .sequence = 2, .expert = 2},
        LayoutCase{.sequence = 3, .data = 2, .expert = 6}, LayoutCase{.pipe = 2, .data = 2}}) {
    const History many = train(layout, {});
    // Before weights differ, the smallest margin over ranks, micro-batches and layers equals that
    // of one rank, up to the rounding of logits of size one.
    EXPECT_NEAR(smallest_margin(many.steps[0]), smallest_margin(one.steps[0]), one.bounds.loss(0))
        << layout.name();
    bool alike = true;
    for (size_t s = 0; s < one.steps.size(); ++s) {
      alike = alike && same_loads(many.steps[s], one.steps[s]);
      const double bound = alike ? std::min(2e-5, one.bounds.loss(s)) : 5e-3;
      EXPECT_NEAR(many.steps[s].loss, one.steps[s].loss, bound * one.steps[s].loss)
          << layout.name() << " step " << s << ", smallest margin "
          << smallest_margin(one.steps[s]);
    }
  }
}

// bf16 rounds factors to three digits: curves stay within half a percent over 50 steps.
TEST_F(Layouts, InBf16FollowTheLossesOfOneRank) {
  const std::vector<std::string> bf16 = {"train.precision=bf16", "train.steps=50",
                                         "train.global_batch=4"};
  const History one = train({}, bf16);
  for (const LayoutCase& layout :
       {LayoutCase{.tensor = 2, .sequence = 2}, LayoutCase{.pipe = 2, .data = 2, .expert = 2}}) {
    const History many = train(layout, bf16);
    for (size_t s = 0; s < one.steps.size(); ++s) {
      ASSERT_NEAR(many.steps[s].loss, one.steps[s].loss, 5e-3 * one.steps[s].loss)
          << layout.name() << " step " << s;
    }
  }
}

}  // namespace
}  // namespace weft::test
