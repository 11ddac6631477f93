#include "kernels/routing/mixture.h"

#include <gtest/gtest.h>

#include "core/host_access.h"
#include "kernels/routing/expert_order.h"
#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

using kernels::ExpertOrder;

// Tokens that choose two of five, so that memories have none, one and several rows.
ExpertOrder order_of(Rig& rig, int64_t tokens) {
  const Tensor index = rig.exec.empty({tokens, 2}, DType::kI32);
  for (int64_t t = 0; t < tokens; ++t) {
    host<int32_t>(index)[2 * t] = static_cast<int32_t>(t % 3);
    host<int32_t>(index)[2 * t + 1] = 4;
  }
  return kernels::order_by_expert(rig.exec, index, 5);
}

TEST(MixRows, WeighsTheRowsOfATokenAndGivesTheirGradients) {
  for (const Isa isa : available_isas()) {
    for (const DType type : kReals) {
      for (const int64_t tokens : {0, 1, 37}) {
        constexpr int64_t kWidth = 19;
        Rig rig(2, isa);
        const ExpertOrder order = order_of(rig, tokens);
        const Padded rows(rig, "rows", 2 * tokens, kWidth, type), y(rig, "y", tokens, kWidth, type);
        const Padded dy(rig, "dy", tokens, kWidth, DType::kF32),
            d_rows(rig, "d", 2 * tokens, kWidth, type);
        const Tensor weight = rig.normal("w", {tokens, 2}), d_weight = rig.exec.empty({tokens, 2});
        kernels::mix_rows_forward(rig.exec, order.row, rows, weight, y);
        kernels::mix_rows_backward(rig.exec, order.row, {rows, weight, dy, d_rows, d_weight});
        const Numbers x = rows.numbers(), w = numbers(weight), d = dy.numbers();
        Numbers want(d.size()), want_rows(x.size()), want_weight(w.size());
        for (size_t pair = 0; pair < w.size(); ++pair) {
          const auto row = static_cast<size_t>(host<int32_t>(order.row)[pair]);
          for (size_t i = 0; i < kWidth; ++i) {
            const double from = x[row * kWidth + i], back = d[pair / 2 * kWidth + i];
            want[pair / 2 * kWidth + i] += w[pair] * from;
            want_rows[row * kWidth + i] = w[pair] * back;
            want_weight[pair] += from * back;
          }
        }
        EXPECT_TRUE(Near(y.view(), want, tolerance(type, 2)));
        EXPECT_TRUE(Near(d_rows.view(), want_rows, tolerance(type, 1)));
        EXPECT_TRUE(Near(d_weight, want_weight, tolerance(DType::kF32, kWidth)));
        EXPECT_TRUE(y.surroundings_kept());
        EXPECT_TRUE(d_rows.surroundings_kept());
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
