#include "kernels/rows/l2_norm.h"
#include "core/host_access.h"

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

constexpr double kEpsilon = 1e-6;

Numbers naive(const Numbers& x, int64_t width) {
  Numbers y(x.size());
  for (size_t at = 0; at < x.size(); at += static_cast<size_t>(width)) {
    double squares = kEpsilon;
    for (int64_t i = 0; i < width; ++i) squares += std::pow(x[at + i], 2);
    for (int64_t i = 0; i < width; ++i) y[at + i] = x[at + i] / std::sqrt(squares);
  }
  return y;
}

TEST(L2Norm, GivesHeadsUnitLengthAndGradientsOfDifferences) {
  for (const Isa isa : available_isas()) {
    for (const DType type : kReals) {
      for (const int64_t width : {1, 5, 16, 37}) {
        SCOPED_TRACE(fmt::format("{} {} width {}", name_of(isa), name_of(type), width));
        constexpr int64_t kRows = 3, kHeads = 2;
        Rig rig(2, isa);
        const Padded x(rig, "x", kRows, kHeads * width, type),
            y(rig, "y", kRows, kHeads * width, type), dy(rig, "dy", kRows, kHeads * width, type),
            dx(rig, "dx", kRows, kHeads * width, type);
        const Tensor inv_norm = rig.exec.empty({kRows, kHeads});
        kernels::l2_norm_forward(rig.exec, {kHeads}, x, y, inv_norm);
        kernels::l2_norm_backward(rig.exec, {kHeads}, dy, y, inv_norm, dx);
        EXPECT_TRUE(Near(y.view(), naive(x.numbers(), width), tolerance(type, width)));
        const Numbers slope = slopes(
            [&](const Numbers& at) { return dot(naive(at, width), dy.numbers()); }, x.numbers());
        // dx is what is left of dy after its part along y has been taken away; y is rounded to its
        // type.
        double largest = 0;
        for (size_t i = 0; i < slope.size(); ++i) {
          const double r = host<float>(inv_norm)[i / static_cast<size_t>(width)];
          largest = std::max(largest, std::abs(dy.numbers()[i]) * r);
        }
        const Numbers got = dx.numbers();
        for (size_t i = 0; i < slope.size(); ++i)
          EXPECT_NEAR(got[i], slope[i], 3 * tolerance(type, width) * largest) << i;
        EXPECT_TRUE(y.surroundings_kept());
        EXPECT_TRUE(dx.surroundings_kept());
      }
    }
  }
}

TEST(L2Norm, WorksInPlaceAndLeavesZeroRowsZero) {
  Rig rig;
  const Tensor x = rig.normal("x", {4, 10}), y = rig.exec.empty({4, 10});
  std::fill_n(host<float>(x), 5, 0.0f);
  const Tensor inv_norm = rig.exec.empty({4, 2});
  kernels::l2_norm_forward(rig.exec, {2}, x, y, inv_norm);
  kernels::l2_norm_forward(rig.exec, {2}, x, x, inv_norm);
  EXPECT_TRUE(SameBits(x, y));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(host<float>(y)[i], 0.0f);
}

}  // namespace
}  // namespace weft::test
