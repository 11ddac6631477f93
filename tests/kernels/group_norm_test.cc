#include "kernels/rows/group_norm.h"

#include <gtest/gtest.h>

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

struct Sizes {
  int64_t tokens, heads, width;
  int64_t all() const { return heads * width; }
};

// The norm as a function of (x | weight | bias).
Numbers normalized(const Numbers& in, const Sizes& s, double epsilon) {
  const int64_t n = s.tokens * s.all();
  Numbers y(static_cast<size_t>(n));
  for (int64_t first = 0; first < n; first += s.width) {
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < s.width; ++c) mean += in[first + c] / static_cast<double>(s.width);
    for (int64_t c = 0; c < s.width; ++c) {
      variance += (in[first + c] - mean) * (in[first + c] - mean) / static_cast<double>(s.width);
    }
    for (int64_t c = first; c < first + s.width; ++c) {
      const int64_t w = c % s.all();
      y[c] = (in[c] - mean) / std::sqrt(variance + epsilon) * in[n + w] + in[n + s.all() + w];
    }
  }
  return y;
}

TEST(GroupNorm, AgreesWithItsFormulaAndItsSlopes) {
  for (const Isa isa : available_isas()) {
    for (const DType type : kReals) {
      for (const Sizes s : {Sizes{3, 2, 37}, Sizes{1, 1, 5}, Sizes{7, 3, 8}}) {
        Rig rig(2, isa);
        const kernels::GroupNorm norm{.heads = s.heads, .epsilon = 1e-3f};
        const Padded x(rig, "x", s.tokens, s.all(), type), y(rig, "y", s.tokens, s.all(), type);
        const Padded dy(rig, "dy", s.tokens, s.all(), type), dx(rig, "dx", s.tokens, s.all(), type);
        const Tensor weight = rig.normal("w", {s.all()}), bias = rig.normal("b", {s.all()});
        const Tensor d_weight = rig.normal("dw", {s.all()}), d_bias = rig.normal("db", {s.all()});
        const kernels::GroupNormStatistics statistics{rig.exec.empty({s.tokens, s.heads}),
                                                      rig.exec.empty({s.tokens, s.heads})};
        kernels::group_norm_forward(rig.exec, norm, x, weight, bias, y, statistics);
        Numbers in = x.numbers();
        for (const Numbers& more : {numbers(weight), numbers(bias)}) {
          in.insert(in.end(), more.begin(), more.end());
        }
        EXPECT_TRUE(Near(y.view(), normalized(in, s, 1e-3), tolerance(type, s.width)));
        EXPECT_TRUE(y.surroundings_kept());

        const Numbers had_weight = numbers(d_weight), had_bias = numbers(d_bias);
        kernels::group_norm_backward(rig.exec, norm, dy, x, weight, statistics,
                                     {dx, d_weight, d_bias});
        const Numbers want = slopes(
            [&](const Numbers& at) { return dot(normalized(at, s, 1e-3), dy.numbers()); }, in);
        const auto first = want.begin() + s.tokens * s.all(), second = first + s.all();
        EXPECT_TRUE(Near(dx.view(), Numbers(want.begin(), first), 4 * tolerance(type, s.width)));
        EXPECT_TRUE(Near(d_weight, plus(Numbers(first, second), had_weight),
                         tolerance(DType::kF32, s.width)));
        EXPECT_TRUE(Near(d_bias, plus(Numbers(second, want.end()), had_bias),
                         tolerance(DType::kF32, s.width)));
        EXPECT_TRUE(dx.surroundings_kept());
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
