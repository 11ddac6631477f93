#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

using kernels::GemmOptions;
using kernels::PackedMatrices;
using kernels::Transpose;
using kernels::Write;

std::vector<double> naive(ConstView a, ConstView b, GemmOptions o) {
  const bool ta = o.a == Transpose::kYes, tb = o.b == Transpose::kYes;
  const std::vector<double> x = numbers(a), y = numbers(b);
  const int64_t m = ta ? a.width() : a.rows(), k = ta ? a.rows() : a.width();
  const int64_t n = tb ? b.rows() : b.width();
  std::vector<double> out(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p) {
        sum += x[static_cast<size_t>(ta ? p * m + i : i * k + p)] *
               y[static_cast<size_t>(tb ? j * k + p : p * n + j)];
      }
      out[static_cast<size_t>(i * n + j)] = sum;
    }
  }
  return out;
}

// Rounding of a sum of k products, relative to the largest result, and of writing the result.
double tolerance(int64_t k, DType out) {
  const double sum = 4 * 6e-8 * std::sqrt(static_cast<double>(k) + 1);
  return sum + (out == DType::kBF16 ? 4e-3 : 0);
}

struct Case {
  int64_t m, n, k;
};

void check(Isa isa, Case size, DType in, DType out, GemmOptions options) {
  Rig rig(2, isa);
  const auto [m, n, k] = size;
  const bool ta = options.a == Transpose::kYes, tb = options.b == Transpose::kYes;
  const Tensor a = rig.normal("a", ta ? Shape{k, m} : Shape{m, k}, 1.0, in);
  const Tensor b = rig.normal("b", tb ? Shape{n, k} : Shape{k, n}, 1.0, in);
  const Tensor c = rig.normal("c", {m, n}, 1.0, out);
  std::vector<double> want = naive(a, b, options);
  if (options.write == Write::kAccumulate) {
    const std::vector<double> before = numbers(c);
    for (size_t i = 0; i < want.size(); ++i) want[i] += before[i];
  }
  kernels::gemm(rig.exec, a, b, c, options);
  EXPECT_TRUE(Near(c, want, tolerance(k, out))) << name_of(isa) << " " << m << " " << n << " " << k
                                                << " " << name_of(in) << name_of(out) << ta << tb;
}

TEST(Gemm, MatchesNaiveLoopsInEveryForm) {
  for (const Isa isa : available_isas()) {
    for (const Case size : {Case{1, 1, 1},
                            {1, 37, 5},
                            {7, 33, 300},
                            {101, 67, 257},
                            {13, 16, 512},
                            {0, 5, 3},
                            {5, 0, 3},
                            {5, 3, 0},
                            {200, 19, 31},
                            {6, 16, 8}}) {
      for (const DType in : {DType::kF32, DType::kBF16}) {
        for (const Transpose ta : {Transpose::kNo, Transpose::kYes}) {
          for (const Transpose tb : {Transpose::kNo, Transpose::kYes}) {
            check(isa, size, in, DType::kF32, {ta, tb, Write::kReplace});
            check(isa, size, in, DType::kF32, {ta, tb, Write::kAccumulate});
            check(isa, size, in, DType::kBF16, {ta, tb, Write::kReplace});
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
