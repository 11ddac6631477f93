#include "launcher/train/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft::test {
namespace {

OptimizerConfig with(const std::string& schedule) {
  OptimizerConfig c;
  c.lr = 1.0;
  c.min_lr = 0.1;
  c.warmup = 10;
  c.decay = 0.2;
  c.schedule = schedule;
  return c;
}

TEST(LearningRate, RisesLinearlyOverTheWarmUp) {
  for (const char* schedule : {"cosine", "wsd", "constant"}) {
    EXPECT_DOUBLE_EQ(learning_rate(with(schedule), 0, 110), 0.1) << schedule;
    EXPECT_DOUBLE_EQ(learning_rate(with(schedule), 4, 110), 0.5) << schedule;
    EXPECT_DOUBLE_EQ(learning_rate(with(schedule), 9, 110), 1.0) << schedule;
  }
}

TEST(LearningRate, FallsAlongACosineToItsFloor) {
  const OptimizerConfig c = with("cosine");
  EXPECT_NEAR(learning_rate(c, 59, 110), 0.55, 1e-12);  // half-way between step 10 and step 110
  EXPECT_NEAR(learning_rate(c, 34, 110), 0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5)), 1e-12);
  EXPECT_NEAR(learning_rate(c, 109, 110), 0.1, 1e-12);
}

TEST(LearningRate, StaysAndThenDecaysLinearlyInWsd) {
  const OptimizerConfig c = with("wsd");
  EXPECT_DOUBLE_EQ(learning_rate(c, 50, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(c, 79, 100), 1.0);
  EXPECT_NEAR(learning_rate(c, 89, 100), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(c, 99, 100), 0.1, 1e-12);
}

TEST(LearningRate, StaysWhenConstant) {
  EXPECT_DOUBLE_EQ(learning_rate(with("constant"), 99, 100), 1.0);
}

TEST(LearningRate, OfARunShorterThanItsWarmUpNeverReachesThePeak) {
  EXPECT_DOUBLE_EQ(learning_rate(with("cosine"), 4, 5), 0.5);
}

}  // namespace
}  // namespace weft::test
