// Softmax and means over the channels of heads.
#include <gtest/gtest.h>

#include <cmath>

#include "core/host_access.h"
#include "kernels/rows/head_pool.h"
#include "kernels/rows/head_softmax.h"
#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

TEST(HeadSoftmax, AgreesWithItsFormulaAndItsSlope) {
  for (const Isa isa : available_isas()) {
    for (const DType type : kReals) {
      for (const int64_t width : {1, 5, 16, 37}) {
        constexpr int64_t kRows = 7, kHeads = 3;
        Rig rig(2, isa);
        const Padded x(rig, "x", kRows, kHeads * width, type, 3.0),
            y(rig, "y", kRows, kHeads * width, DType::kF32);
        const Padded dy(rig, "dy", kRows, kHeads * width, type),
            dx(rig, "dx", kRows, kHeads * width, type);
        kernels::head_softmax_forward(rig.exec, kHeads, x, y);
        kernels::head_softmax_backward(rig.exec, kHeads, y, dy, dx);
        const Numbers in = x.numbers(), d = dy.numbers();
        kernels::head_softmax_backward(rig.exec, kHeads, y, dy, dy);
        EXPECT_EQ(dy.numbers(), dx.numbers());
        Numbers want(in.size()), slope(in.size());
        const auto w = static_cast<size_t>(width);
        for (size_t head = 0; head * w < in.size(); ++head) {
          double total = 0, product = 0;
          for (size_t i = head * w; i < (head + 1) * w; ++i) total += std::exp(in[i]);
          for (size_t i = head * w; i < (head + 1) * w; ++i) {
            want[i] = std::exp(in[i]) / total;
            product += want[i] * d[i];
          }
          for (size_t i = head * w; i < (head + 1) * w; ++i) slope[i] = want[i] * (d[i] - product);
        }
        EXPECT_TRUE(Near(y.view(), want, tolerance(DType::kF32, width)));
        EXPECT_TRUE(Near(dx.view(), slope, tolerance(type, width)));
        EXPECT_TRUE(y.surroundings_kept());
        EXPECT_TRUE(dx.surroundings_kept());
      }
    }
  }
}

TEST(HeadSoftmax, StaysFiniteFarFromZero) {
  Rig rig;
  const Tensor s = rig.exec.empty({1, 3}), p = rig.exec.empty({1, 3});
  for (const float far : {-500.0f, 500.0f}) {
    for (int i = 0; i < 3; ++i) host<float>(s)[i] = far;
    kernels::head_softmax_forward(rig.exec, 1, s, p);
    EXPECT_TRUE(Near(p, Numbers(3, 1.0 / 3), 1e-6));
  }
}

TEST(HeadPool, TakesMeansOfBinsForEveryHeadOfAGroup) {
  for (const DType type : kReals) {
    for (const int64_t bins : {1, 3, 7}) {  // 3 does not divide 7
      constexpr int64_t kRows = 5, kSources = 2, kGroup = 3, kWidth = 7;
      Rig rig;
      const kernels::HeadPool pool{
          .heads = kSources * kGroup, .sources = kSources, .bins = bins, .factor = -2.0f};
      const Padded x(rig, "x", kRows, kSources * kWidth, type),
          z(rig, "z", kRows, pool.heads * bins, DType::kF32);
      const Padded dz(rig, "dz", kRows, pool.heads * bins, DType::kF32),
          dx(rig, "dx", kRows, kSources * kWidth, type);
      const Numbers in = x.numbers(), d = dz.numbers();
      Numbers want(d.size()), slope = dx.numbers();
      for (int64_t t = 0; t < kRows; ++t) {
        for (int64_t h = 0; h < pool.heads; ++h) {
          for (int64_t i = 0; i < bins; ++i) {
            const int64_t from = i * kWidth / bins;
            const auto to = static_cast<int64_t>(
                std::ceil(static_cast<double>((i + 1) * kWidth) / static_cast<double>(bins)));
            const auto at = static_cast<size_t>((t * pool.heads + h) * bins + i);
            for (int64_t c = from; c < to; ++c) {
              const auto source = static_cast<size_t>((t * kSources + h / kGroup) * kWidth + c);
              want[at] += -2.0 * in[source] / static_cast<double>(to - from);
              slope[source] += -2.0 * d[at] / static_cast<double>(to - from);
            }
          }
        }
      }
      kernels::head_pool_forward(rig.exec, pool, x, z);
      kernels::head_pool_backward(rig.exec, pool, dz, dx);
      EXPECT_TRUE(Near(z.view(), want, tolerance(DType::kF32, kWidth)));
      // Every addition rounds: as many as heads of a group and bins that share a channel.
      EXPECT_TRUE(Near(dx.view(), slope, 2 * kGroup * tolerance(type, 1)));
      EXPECT_TRUE(dx.surroundings_kept());
    }
  }
}

}  // namespace
}  // namespace weft::test
