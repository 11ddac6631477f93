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

}  // namespace
}  // namespace weft::test
