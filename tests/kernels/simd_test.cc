#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/kernels/numeric.h"
#include "tests/kernels/simd_probe.h"

namespace weft::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Simd : public testing::TestWithParam<Isa> {
 protected:
  const SimdProbe probe =
      kernels::by_isa(GetParam(), [](auto isa) -> SimdProbe { return simd_probe(isa); });

  using Function = void (*)(const float*, float*, int64_t);
  std::vector<float> run(Function f, std::vector<float> x) const {
    const size_t count = x.size();
    x.resize((count + 15) / 16 * 16, 1.0f);
    std::vector<float> y(x.size());
    f(x.data(), y.data(), static_cast<int64_t>(x.size()));
    y.resize(count);
    return y;
  }
};

// The bounds are those that simd.h states, in units in the last place.
constexpr float kTiny = 1.17549435e-38f;  // the smallest normal number

// Every 499th float from low to high (same sign, low nearer to zero): all binades, millions of
// values.
std::vector<float> floats_between(float low, float high) {
  std::vector<float> out;
  for (auto bits = std::bit_cast<uint32_t>(low); bits <= std::bit_cast<uint32_t>(high);
       bits += 499) {
    out.push_back(std::bit_cast<float>(bits));
  }
  return out;
}

double worst_ulp(const std::vector<float>& x, const std::vector<float>& y,
                 double (*exact)(double)) {
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = exact(x[i]);
    const double unit = std::ldexp(1.0, std::max(std::ilogb(want), -126) - 23);
    worst = std::max(worst, std::abs(y[i] - want) / unit);
  }
  return worst;
}

TEST_P(Simd, ExpIsWithinItsErrorBound) {
  for (const auto& x : {floats_between(kTiny, 88.72283f), floats_between(-kTiny, -86.98f)}) {
    EXPECT_LE(worst_ulp(x, run(probe.exp, x), std::exp), 1.35);
  }
}

TEST_P(Simd, ExpKnowsItsEnds) {
  const auto y = run(probe.exp, {0.0f, -0.0f, kInf, -kInf, 88.73f, 1e30f, -87.4f, -1e30f, kNan});
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], 1.0f);
  EXPECT_EQ(y[2], kInf);
  EXPECT_EQ(y[3], 0.0f);
  EXPECT_EQ(y[4], kInf);
  EXPECT_EQ(y[5], kInf);
  EXPECT_EQ(y[6], 0.0f);
  EXPECT_EQ(y[7], 0.0f);
  EXPECT_TRUE(std::isnan(y[8]));
}

TEST_P(Simd, LogIsWithinItsErrorBound) {
  const auto x = floats_between(kTiny, std::numeric_limits<float>::max());
  EXPECT_LE(worst_ulp(x, run(probe.log, x), std::log), 0.95);
  // Around 1, where the logarithm vanishes.
  const auto near_one = floats_between(0.9f, 1.1f);
  EXPECT_LE(worst_ulp(near_one, run(probe.log, near_one), std::log), 0.95);
}

TEST_P(Simd, LogKnowsItsEnds) {
  const auto y = run(probe.log, {1.0f, 0.0f, kInf, -1.0f, kNan, -kInf});
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], -kInf);
  EXPECT_EQ(y[2], kInf);
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_TRUE(std::isnan(y[5]));
}

TEST_P(Simd, SigmoidIsWithinItsErrorBound) {
  // Further down results soon are subnormal, which threads flush to zero.
  for (const auto& x : {floats_between(kTiny, 100.0f), floats_between(-kTiny, -86.98f)}) {
    EXPECT_LE(worst_ulp(x, run(probe.sigmoid, x), sigmoid), 3.1);
  }
  const auto y = run(probe.sigmoid, {0.0f, kInf, -kInf, kNan});
  EXPECT_EQ(y[0], 0.5f);
  EXPECT_EQ(y[1], 1.0f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_TRUE(std::isnan(y[3]));
}

TEST_P(Simd, TanhIsWithinItsErrorBound) {
  for (const auto& x : {floats_between(kTiny, 100.0f), floats_between(-kTiny, -100.0f)}) {
    EXPECT_LE(worst_ulp(x, run(probe.tanh, x), std::tanh), 1.5);
  }
  const auto y = run(probe.tanh, {0.0f, kInf, -kInf, kNan});
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], 1.0f);
  EXPECT_EQ(y[2], -1.0f);
  EXPECT_TRUE(std::isnan(y[3]));
}

TEST_P(Simd, SqrtIsExactlyRounded) {
  const auto x = floats_between(kTiny, std::numeric_limits<float>::max());
  const auto y = run(probe.sqrt, x);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], std::sqrt(x[i]));
}

TEST_P(Simd, RoundsToBf16AsTheScalarDoes) {
  std::vector<float> x = {kNan, kInf, -kInf, 0.0f, -0.0f, std::numeric_limits<float>::max()};
  for (uint32_t bits = 0; bits < 0xffff0000u; bits += 65521)
    x.push_back(std::bit_cast<float>(bits));
  for (uint32_t high = 0x3f80; high < 0x3f90; ++high) {  // ties, and one off them
    for (const uint32_t low : {0x7fffu, 0x8000u, 0x8001u}) {
      x.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  x.resize((x.size() + 15) / 16 * 16);
  std::vector<bf16> y(x.size());
  std::vector<float> back(x.size());
  probe.round(x.data(), y.data(), static_cast<int64_t>(x.size()));
  probe.widen(y.data(), back.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const bool subnormal = std::abs(x[i]) < kTiny;  // instructions that round make zeros of them
    const bf16 flushed = to_bf16(std::copysign(0.0f, x[i]));
    ASSERT_TRUE(y[i] == to_bf16(x[i]) || (subnormal && y[i] == flushed)) << x[i];
    ASSERT_EQ(std::bit_cast<uint32_t>(back[i]), std::bit_cast<uint32_t>(to_float(y[i])));
  }
}

TEST_P(Simd, PartsTouchNothingBeyondTheirEnd) {
  for (int n = 0; n < probe.lanes; ++n) {
    std::vector<float> x(static_cast<size_t>(n)), y(static_cast<size_t>(n) + 1, -1.0f);
    for (int i = 0; i < n; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i + 1);
    probe.pass_part(x.data(), y.data(), n);
    for (int i = 0; i < n; ++i) EXPECT_EQ(y[static_cast<size_t>(i)], static_cast<float>(i + 1));
    EXPECT_EQ(y[static_cast<size_t>(n)], -1.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Simd, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
