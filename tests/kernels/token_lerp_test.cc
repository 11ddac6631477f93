#include "kernels/sequence/token_lerp.h"

#include <gtest/gtest.h>

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

constexpr int64_t kRows = 13, kWidth = 37;

// As a function of (x | before | mix), mix [kWidth] or one per element.
Numbers mixed(const Numbers& in) {
  const size_t n = kRows * kWidth, own = in.size() - 2 * n;
  Numbers y(n);
  for (size_t i = 0; i < n; ++i) y[i] = in[i] + in[2 * n + i % own] * (in[n + i] - in[i]);
  return y;
}

TEST(TokenLerp, AgreesWithItsFormulaAndItsSlopes) {
  for (const Isa isa : available_isas()) {
    for (const DType type : kReals) {
      for (const bool own : {false, true}) {
        Rig rig(2, isa);
        const Padded x(rig, "x", kRows, kWidth, type), before(rig, "before", kRows, kWidth, type);
        const Padded many(rig, "mix", kRows, kWidth, type), y(rig, "y", kRows, kWidth, type);
        const Tensor one = rig.normal("mix", {kWidth});
        const ConstView mix = own ? ConstView(many) : ConstView(one);
        kernels::token_lerp_forward(rig.exec, {x, before, mix}, y);
        Numbers in = x.numbers();
        for (const Numbers& more : {before.numbers(), numbers(mix)}) {
          in.insert(in.end(), more.begin(), more.end());
        }
        EXPECT_TRUE(Near(y.view(), mixed(in), tolerance(type, 2)));
        EXPECT_TRUE(y.surroundings_kept());

        const Padded dy(rig, "dy", kRows, kWidth, type);
        const Padded dx(rig, "dx", kRows, kWidth, DType::kF32),
            d_before(rig, "db", kRows, kWidth, DType::kF32), d_many(rig, "dm", kRows, kWidth, type);
        const Tensor d_one = rig.normal("dm", {kWidth});
        Numbers want = slopes([&](const Numbers& at) { return dot(mixed(at), dy.numbers()); }, in);
        const Numbers had_x = dx.numbers(), had_before = d_before.numbers(), had = numbers(d_one);
        kernels::token_lerp_backward(rig.exec, {x, before, mix}, dy,
                                     {dx, d_before, own ? d_many.view() : d_one.view()});
        const auto first = want.begin() + kRows * kWidth, second = first + kRows * kWidth;
        // Added to what was there; slopes of a bilinear function have no error of their own.
        EXPECT_TRUE(Near(dx.view(), plus(Numbers(want.begin(), first), had_x), 1e-6));
        EXPECT_TRUE(Near(d_before.view(), plus(Numbers(first, second), had_before), 1e-6));
        const Numbers d_mix(second, want.end());
        if (own)
          EXPECT_TRUE(Near(d_many.view(), d_mix, tolerance(type, 2)));
        else
          EXPECT_TRUE(Near(d_one, plus(d_mix, had), tolerance(DType::kF32, kRows)));
        EXPECT_TRUE(dx.surroundings_kept());
        EXPECT_TRUE(d_before.surroundings_kept());
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
