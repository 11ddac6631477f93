#include "kernels/rows/elementwise.h"
#include "core/host_access.h"

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

class Elementwise : public testing::TestWithParam<Isa> {};

TEST_P(Elementwise, CopyConvertsAndKeepsBitsOfTheSameType) {
  Rig rig(2, GetParam());
  for (const int64_t width : {1, 7, 67}) {
    for (int mix = 0; mix < 4; ++mix) {
      const DType out = kReals[mix / 2];
      const Padded x(rig, "x", 13, width, kReals[mix % 2]), y(rig, "y", 13, width, out);
      kernels::copy(rig.exec, x, y);
      if (x.view().dtype == out) {
        EXPECT_TRUE(SameBits(x.view(), y.view()));
      } else {
        Numbers want = x.numbers();
        for (double& v : want) {
          if (out == DType::kBF16) v = to_float(to_bf16(static_cast<float>(v)));
        }
        EXPECT_EQ(y.numbers(), want);
      }
      EXPECT_TRUE(y.surroundings_kept());
    }
  }
}

TEST_P(Elementwise, AddAndScaleRoundOnce) {
  Rig rig(2, GetParam());
  const auto rounded = [](double x, DType type) -> double {
    const auto f = static_cast<float>(x);
    return type == DType::kBF16 ? to_float(to_bf16(f)) : f;
  };
  for (int mix = 0; mix < 8; ++mix) {
    const DType out = kReals[mix / 4];
    const Padded a(rig, "a", 11, 37, kReals[mix % 2]), b(rig, "b", 11, 37, kReals[mix / 2 % 2]);
    const Padded sum(rig, "s", 11, 37, out), scaled(rig, "t", 11, 37, out);
    kernels::add(rig.exec, a, b, sum);
    kernels::scale(rig.exec, a, 0.7f, scaled);
    Numbers want_sum = plus(a.numbers(), b.numbers()), want_scaled = a.numbers();
    for (double& v : want_sum) v = rounded(v, out);
    for (double& v : want_scaled) v = rounded(v * double{0.7f}, out);
    EXPECT_EQ(sum.numbers(), want_sum);
    EXPECT_EQ(scaled.numbers(), want_scaled);
    EXPECT_TRUE(sum.surroundings_kept() && scaled.surroundings_kept());
  }
}

TEST_P(Elementwise, AddAndScaleWorkInPlaceOverManyBlocks) {
  Rig rig(3, GetParam());
  const Tensor a = rig.normal("a", {3, 40009}), b = rig.normal("b", {3, 40009});
  const Numbers want = plus(numbers(a), numbers(b));
  kernels::add(rig.exec, a, b, b);
  kernels::add(rig.exec, a, rig.normal("b", {3, 40009}), a);
  EXPECT_TRUE(SameBits(a.view(), b.view()));
  EXPECT_TRUE(Near(a, want, tolerance(DType::kF32, 1)));
  kernels::scale(rig.exec, a, -2.0f, a);
  kernels::add(rig.exec, a, b, a);
  kernels::add(rig.exec, a, b, a);
  EXPECT_TRUE(SameBits(a.view(), rig.exec.zeros({3, 40009}).view()));
}

TEST_P(Elementwise, ShiftScaleAddsBeforeItMultiplies) {
  Rig rig(2, GetParam());
  for (const DType type : kReals) {
    for (const int64_t width : {1, 37}) {
      const Padded x(rig, "x", 5, width, type), y(rig, "y", 5, width, DType::kF32);
      kernels::shift_scale(rig.exec, x, 1.0f, 3.0f, y);
      Numbers want = x.numbers();
      for (double& number : want) number = 3.0 * (1.0 + number);
      EXPECT_TRUE(Near(y.view(), want, tolerance(DType::kF32, 1)));
      EXPECT_TRUE(y.surroundings_kept());
    }
  }
}

TEST_P(Elementwise, FillWritesItsRowsOnly) {
  Rig rig(2, GetParam());
  for (const DType dtype : kReals) {
    const Padded y(rig, "y", 9, 21, dtype);
    kernels::fill(rig.exec, y, -1.5f);
    EXPECT_EQ(y.numbers(), Numbers(9 * 21, -1.5));
    EXPECT_TRUE(y.surroundings_kept());
  }
}

TEST_P(Elementwise, AddBiasAddsToEveryRow) {
  Rig rig(2, GetParam());
  for (const DType dtype : kReals) {
    const Padded y(rig, "y", 601, 53, dtype);
    const Tensor bias = rig.normal("b", {53});
    Numbers want = y.numbers();
    for (size_t i = 0; i < want.size(); ++i) want[i] += numbers(bias)[i % 53];
    kernels::add_bias(rig.exec, bias, y);
    EXPECT_TRUE(Near(y.view(), want, tolerance(dtype, 1)));
    EXPECT_TRUE(y.surroundings_kept());
  }
}

TEST_P(Elementwise, DoNothingWithoutElements) {
  Rig rig(2, GetParam());
  const Tensor none = rig.exec.empty({0, 5}), five = rig.normal("x", {5});
  const Numbers before = numbers(five);
  kernels::copy(rig.exec, none, none);
  kernels::add(rig.exec, {}, {}, {});
  kernels::scale(rig.exec, none, 2.0f, none);
  kernels::fill(rig.exec, {}, 1.0f);
  kernels::add_bias(rig.exec, five, none);
  EXPECT_EQ(numbers(five), before);
}

TEST_P(Elementwise, RefuseMatricesOfOtherSizes) {
  Rig rig(1, GetParam());
  const Tensor a = rig.normal("a", {3, 4}), b = rig.normal("b", {3, 5});
  EXPECT_THROW(kernels::copy(rig.exec, a, b), Error);
  EXPECT_THROW(kernels::add_bias(rig.exec, rig.normal("c", {3}), a), Error);
}

INSTANTIATE_TEST_SUITE_P(Every, Elementwise, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
