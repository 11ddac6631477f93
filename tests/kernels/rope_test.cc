#include "kernels/rows/rope.h"
#include "core/host_access.h"

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

using kernels::Rope;

Numbers naive(const Rope& rope, const std::vector<int32_t>& positions, Numbers x) {
  const int64_t w = rope.rotary_width, half = w / 2;
  const double sign = rope.direction == Rope::Direction::kForward ? 1 : -1;
  for (size_t t = 0; t < positions.size(); ++t) {
    for (int64_t h = 0; h < rope.heads; ++h) {
      double* head = x.data() + (static_cast<int64_t>(t) * rope.heads + h) * rope.head_width;
      for (int64_t i = 0; i < half; ++i) {
        const double angle = positions[t] * std::pow(rope.base, -2.0 * static_cast<double>(i) /
                                                                    static_cast<double>(w));
        const double c = std::cos(angle), s = sign * std::sin(angle);
        const double low = head[i], high = head[i + half];
        head[i] = low * c - high * s;
        head[i + half] = high * c + low * s;
      }
    }
  }
  return x;
}

class RopeTest : public testing::TestWithParam<Isa> {
 protected:
  static Tensor tensor(Rig& rig, const std::vector<int32_t>& values) {
    const Tensor out = rig.exec.empty({static_cast<int64_t>(values.size())}, DType::kI32);
    std::copy(values.begin(), values.end(), host<int32_t>(out));
    return out;
  }
  // Two documents of 150 and 61 tokens.
  static std::vector<int32_t> packed(int32_t first) {
    std::vector<int32_t> out;
    for (int32_t p = 0; p < 150; ++p) out.push_back(first + p);
    for (int32_t p = 0; p < 61; ++p) out.push_back(p);
    return out;
  }
  void expect_turned(const Rope& rope, const std::vector<int32_t>& positions) const {
    for (const DType dtype : kReals) {
      Rig rig(2, GetParam());
      const Padded x(rig, "x", static_cast<int64_t>(positions.size()), rope.heads * rope.head_width,
                     dtype);
      const Numbers want = naive(rope, positions, x.numbers());
      kernels::rope(rig.exec, rope, tensor(rig, positions), x);
      EXPECT_TRUE(Near(x.view(), want, tolerance(dtype, 2)));
      EXPECT_TRUE(x.surroundings_kept());
    }
  }
};

TEST_P(RopeTest, TurnsPairsByTheirAngle) {
  for (const auto direction : {Rope::Direction::kForward, Rope::Direction::kBackward}) {
    for (const int64_t width : {2, 6, 34}) {
      const Rope rope{3, width, width, 10000.0, direction};
      expect_turned(rope, packed(0));
      expect_turned(rope, {5});
    }
  }
}

TEST_P(RopeTest, LeavesTheChannelsBeyondTheRotaryWidth) {
  expect_turned({.heads = 2, .head_width = 37, .rotary_width = 20}, packed(0));
  expect_turned({.heads = 2, .head_width = 5, .rotary_width = 0}, packed(0));
}

TEST_P(RopeTest, IsExactFarFromTheStart) {
  const Rope rope{.heads = 1, .head_width = 16, .rotary_width = 16, .base = 500000.0};
  expect_turned(rope, packed(1000003));                  // a late span of a long document
  expect_turned(rope, {0, 2000000000, 7, 1 << 20, 64});  // far apart: nothing to share
  std::vector<int32_t> late;
  for (int32_t p = 0; p < 300; ++p) late.push_back(262139 + p);
  expect_turned(rope, late);
}

TEST_P(RopeTest, BackwardUndoesForward) {
  Rig rig(2, GetParam());
  const Tensor x = rig.normal("x", {211, 2 * 18}), positions = tensor(rig, packed(0));
  const Numbers before = numbers(x);
  Rope rope{.heads = 2, .head_width = 18, .rotary_width = 18};
  kernels::rope(rig.exec, rope, positions, x);
  rope.direction = Rope::Direction::kBackward;
  kernels::rope(rig.exec, rope, positions, x);
  EXPECT_TRUE(Near(x, before, tolerance(DType::kF32, 4)));
}

TEST_P(RopeTest, GivesTheSameBitsForAnyThreadsAndNothingForNoTokens) {
  const auto run = [&](int threads) {
    Rig rig(threads, GetParam());
    const Tensor x = rig.normal("x", {211, 8 * 34});
    const Rope rope{.heads = 8, .head_width = 34, .rotary_width = 34};
    kernels::rope(rig.exec, rope, tensor(rig, packed(3)), x);
    kernels::rope(rig.exec, rope, rig.exec.empty({0}, DType::kI32), rig.exec.empty({0, 8 * 34}));
    return numbers(x);
  };
  const Numbers one = run(1);
  EXPECT_EQ(one, run(2));
  EXPECT_EQ(one, run(3));
}

INSTANTIATE_TEST_SUITE_P(Every, RopeTest, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
