// Statistics of `weft bench mixer`.
#include "launcher/bench/bench_slope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "launcher/bench/bench_mixer_versus.h"

namespace weft::test {
namespace {

TEST(Slope, OfAPowerLawIsItsExponent) {
  for (const double exponent : {-0.5, 0.0, 0.02, 1.0}) {
    std::vector<Timing> timings;
    for (const double length : {2048.0, 4096.0, 8192.0, 65536.0}) {
      for (int i = 0; i < 3; ++i) timings.push_back({length, 3e-6 * std::pow(length, exponent)});
    }
    const Slope slope = slope_of(timings);
    EXPECT_NEAR(slope.value, exponent, 1e-12);
    EXPECT_NEAR(slope.half_width, 0, 1e-12);
  }
}

// Three points, the middle one off by a factor e^d: the line keeps its slope 1, the residuals are
// -d/3, 2d/3, -d/3, and one degree of freedom makes the interval 12.706 d / sqrt(3).
TEST(Slope, HasTheIntervalOfItsResiduals) {
  constexpr double kOff = 0.1;
  const Slope slope =
      slope_of({{1, 1}, {std::exp(1), std::exp(1 + kOff)}, {std::exp(2), std::exp(2)}});
  EXPECT_NEAR(slope.value, 1, 1e-12);
  EXPECT_NEAR(slope.half_width, 12.706 * kOff / std::sqrt(3.0), 1e-9);
}

// One slow repetition does not change a length's median, and two points are always on a line.
TEST(Slope, IsThatOfMedians) {
  std::vector<Timing> timings;
  for (const double length : {10.0, 100.0, 1000.0}) {
    for (const double seconds : {1.0, 1.0, 50.0}) timings.push_back({length, seconds});
  }
  EXPECT_NEAR(slope_of(timings).value, 0, 1e-12);
  EXPECT_TRUE(std::isinf(slope_of({{1, 1}, {2, 3}}).half_width));
}

TEST(FasterFrom, IsTheLengthAfterWhichAllRatiosAreAboveOne) {
  EXPECT_TRUE(faster_from({}).is_null());
  EXPECT_TRUE(faster_from({{128, 0.5}, {256, 0.9}}).is_null());
  EXPECT_TRUE(faster_from({{128, 2.0}, {256, 1.0}}).is_null());  // lost again
  EXPECT_EQ(faster_from({{128, 0.5}, {256, 1.1}, {512, 3.0}}), 256);
  EXPECT_EQ(faster_from({{128, 1.5}, {256, 1.1}, {512, 3.0}}), 128);
  EXPECT_EQ(faster_from({{128, 1.5}, {256, 0.9}, {512, 1.2}}), 512);  // crossed twice
}

}  // namespace
}  // namespace weft::test
