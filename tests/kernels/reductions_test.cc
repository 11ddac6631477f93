#include "kernels/rows/reductions.h"

#include "core/host_access.h"
#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

class Reductions : public testing::TestWithParam<Isa> {};

double sum_of_squares(Rig& rig, ConstView x) {
  const Tensor sum = rig.exec.empty({1}, DType::kF64);
  kernels::sum_of_squares(rig.exec, x, sum);
  return *host<double>(sum);
}

TEST_P(Reductions, ColumnSumAccumulates) {
  Rig rig(2, GetParam());
  for (const int64_t rows : {1, 2003}) {
    for (const DType dtype : kReals) {
      const Padded x(rig, "x", rows, 29, dtype);
      const Tensor sum = rig.normal("s", {29});
      Numbers want = numbers(sum);
      const Numbers values = x.numbers();
      for (size_t i = 0; i < values.size(); ++i) want[i % 29] += values[i];
      kernels::column_sum(rig.exec, x, sum);
      EXPECT_TRUE(Near(sum, want, tolerance(DType::kF32, rows)));
    }
  }
}

TEST_P(Reductions, ColumnMeanReplacesWhatWasThere) {
  Rig rig(2, GetParam());
  const Tensor p = rig.normal("p", {1301, 13}), mean = rig.normal("m", {13});
  kernels::column_mean(rig.exec, p, mean);
  Numbers want(13);
  for (size_t i = 0; i < 1301 * 13; ++i) want[i % 13] += numbers(p.row(i / 13))[i % 13] / 1301;
  // Sums of 1301 numbers of size 1 whose mean is 0.
  EXPECT_TRUE(Near(mean, want, 1e-5));
}

TEST_P(Reductions, SumOfSquaresLeavesTheRangeOfF32) {
  Rig rig(2, GetParam());
  const Padded x(rig, "x", 77, 1009, DType::kF32);
  double want = 0;
  for (const double v : x.numbers()) want += v * v;
  EXPECT_NEAR(sum_of_squares(rig, x), want, 1e-12 * want);
  for (const float size : {1e30f, 1e-30f}) {
    const Tensor three = rig.exec.empty({3});
    std::fill_n(host<float>(three), 3, size);
    const double square = double{size} * size;
    EXPECT_NEAR(sum_of_squares(rig, three), 3 * square, 1e-12 * square);
  }
}

TEST_P(Reductions, SumOfSquaresWritesOnePlaceOfAVector) {
  Rig rig(2, GetParam());
  const Tensor x = rig.normal("x", {7}), sums = rig.exec.zeros({3}, DType::kF64);
  kernels::sum_of_squares(rig.exec, x, sums.slice(1, 1));
  EXPECT_EQ(numbers(sums), (Numbers{0, sum_of_squares(rig, x), 0}));
}

TEST_P(Reductions, AreTheSameBitsForAnyThreads) {
  const auto run = [&](int threads) {
    Rig rig(threads, GetParam());
    const Tensor x = rig.normal("x", {1301, 97}), sum = rig.exec.zeros({97}),
                 mean = rig.exec.empty({97});
    kernels::column_sum(rig.exec, x, sum);
    kernels::column_mean(rig.exec, x, mean);
    return std::tuple(sum_of_squares(rig, x), numbers(sum), numbers(mean));
  };
  const auto one = run(1);
  EXPECT_EQ(one, run(2));
  EXPECT_EQ(one, run(3));
}

TEST_P(Reductions, OfNothingAreZero) {
  Rig rig(2, GetParam());
  const Tensor none = rig.exec.empty({0, 5}), five = rig.normal("x", {5});
  const Numbers before = numbers(five);
  kernels::column_sum(rig.exec, none, five);
  EXPECT_EQ(numbers(five), before);
  kernels::column_mean(rig.exec, none, five);
  EXPECT_EQ(numbers(five), Numbers(5));
  EXPECT_EQ(sum_of_squares(rig, none), 0.0);
}

INSTANTIATE_TEST_SUITE_P(Every, Reductions, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(AddSum, AddsInTheOrderOfTheElements) {
  Rig rig;
  const Tensor x = rig.normal("x", {37}), sum = rig.exec.zeros({1}, DType::kF64);
  host<double>(sum)[0] = 0.5;
  kernels::add_sum(rig.exec, x, sum);
  double want = 0.5;
  for (const double number : numbers(x)) want += number;
  EXPECT_EQ(host<double>(sum)[0], want);
}

}  // namespace
}  // namespace weft::test
