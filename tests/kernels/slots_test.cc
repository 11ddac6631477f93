#include "kernels/rows/slots.h"
#include "core/host_access.h"

#include <gtest/gtest.h>

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

TEST(SlotWrites, AreWhatIsNotKept) {
  for (const Isa isa : available_isas()) {
    for (const DType type : kReals) {
      Rig rig(2, isa);
      const Padded g(rig, "g", 5, 37, DType::kF32, 0.3), w(rig, "w", 5, 37, type);
      for (int64_t r = 0; r < 5; ++r) {
        float* row = host<float>(g.view()) + r * g.view().row_stride;
        for (int64_t c = 0; c < 37; ++c) row[c] = -std::abs(row[c]) * (c % 7 == 0 ? 40.0f : 1.0f);
      }
      kernels::slot_writes_forward(rig.exec, g, w);
      const Padded dw(rig, "dw", 5, 37, type), dg(rig, "dg", 5, 37, DType::kF32);
      const Numbers at = g.numbers(), d = dw.numbers();
      Numbers want(at.size()), slope = dg.numbers();
      for (size_t i = 0; i < at.size(); ++i) {
        want[i] = -std::expm1(at[i]);
        slope[i] -= std::exp(at[i]) * d[i];
      }
      kernels::slot_writes_backward(rig.exec, g, dw, dg);
      EXPECT_TRUE(Near(w.view(), want, tolerance(type, 1)));
      EXPECT_TRUE(Near(dg.view(), slope, tolerance(DType::kF32, 2)));
      EXPECT_TRUE(w.surroundings_kept());
      EXPECT_TRUE(dg.surroundings_kept());
    }
  }
}

Numbers softmax(const Numbers& s, int64_t slots) {
  Numbers p(s.size());
  for (size_t first = 0; first < s.size(); first += slots) {
    double most = s[first], total = 0;
    for (int64_t i = 0; i < slots; ++i) most = std::max(most, s[first + i]);
    for (int64_t i = 0; i < slots; ++i) total += std::exp(s[first + i] - most);
    for (int64_t i = 0; i < slots; ++i) p[first + i] = std::exp(s[first + i] - most) / total;
  }
  return p;
}

TEST(SlotSoftmax, AgreesWithItsFormulaAndItsSlopes) {
  for (const Isa isa : available_isas()) {
    for (const DType type : kReals) {
      for (const int64_t slots : {1, 6, 16, 37}) {
        Rig rig(2, isa);
        const Padded s(rig, "s", 7, 2 * slots, type, 3.0), p(rig, "p", 7, 2 * slots, DType::kF32);
        kernels::slot_softmax_forward(rig.exec, 2, s, p);
        EXPECT_TRUE(Near(p.view(), softmax(s.numbers(), slots), tolerance(DType::kF32, slots)));
        EXPECT_TRUE(p.surroundings_kept());
        const Padded dp(rig, "dp", 7, 2 * slots, DType::kF32);
        const Numbers d = dp.numbers(), shares = p.numbers();
        const Numbers want =
            slopes([&](const Numbers& at) { return dot(softmax(at, slots), d); }, s.numbers());
        kernels::slot_softmax_backward(rig.exec, 2, p, dp, dp);
        // Differences of numbers of size one: their own error, not that of the result's size.
        EXPECT_TRUE(Near(plus(dp.numbers(), Numbers(d.size(), 1.0)),
                         plus(want, Numbers(d.size(), 1.0)), tolerance(DType::kF32, slots)));
      }
    }
  }
}

TEST(SlotSoftmax, StaysFiniteFarFromZero) {
  Rig rig;
  const Tensor s = rig.exec.empty({1, 3}), p = rig.exec.empty({1, 3});
  for (const float far : {-500.0f, 500.0f}) {
    for (int i = 0; i < 3; ++i) host<float>(s)[i] = far;
    kernels::slot_softmax_forward(rig.exec, 1, s, p);
    EXPECT_TRUE(Near(p, Numbers(3, 1.0 / 3), 1e-6));
  }
}

}  // namespace
}  // namespace weft::test
