#include "kernels/matrix/gemm.h"
#include "core/host_access.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

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

// Nothing, one, primes, one more than a register block, than a block of k, than a tile of rows.
const Case kCases[] = {{0, 5, 3},    {5, 0, 3},    {5, 3, 0},      {1, 1, 1},     {1, 37, 5},
                       {2, 97, 9},   {3, 130, 11}, {7, 33, 300},   {6, 16, 8},    {13, 16, 512},
                       {29, 31, 37}, {15, 67, 31}, {101, 67, 257}, {145, 19, 31}, {33, 17, 769}};

struct Operands {
  Tensor a, b, c;
};

Operands operands(Rig& rig, Case size, DType in, DType out, GemmOptions options) {
  const auto [m, n, k] = size;
  return {rig.normal("a", options.a == Transpose::kYes ? Shape{k, m} : Shape{m, k}, 1.0, in),
          rig.normal("b", options.b == Transpose::kYes ? Shape{n, k} : Shape{k, n}, 1.0, in),
          rig.normal("c", {m, n}, 1.0, out)};
}

template <class Check>
void for_every_form(Check check) {
  for (const DType in : {DType::kF32, DType::kBF16}) {
    for (const Transpose a : {Transpose::kNo, Transpose::kYes}) {
      for (const Transpose b : {Transpose::kNo, Transpose::kYes}) {
        check(in, DType::kF32, GemmOptions{a, b, Write::kReplace});
        check(in, DType::kF32, GemmOptions{a, b, Write::kAccumulate});
        check(in, DType::kBF16, GemmOptions{a, b, Write::kReplace});
      }
    }
  }
}

TEST(Gemm, MatchesNaiveLoopsInEveryForm) {
  for (const Isa isa : available_isas()) {
    Rig rig(2, isa);
    for (const Case size : kCases) {
      for_every_form([&](DType in, DType out, GemmOptions options) {
        const auto [a, b, c] = operands(rig, size, in, out, options);
        std::vector<double> want = naive(a, b, options);
        const std::vector<double> before = numbers(c);
        if (options.write == Write::kAccumulate) {
          for (size_t i = 0; i < want.size(); ++i) want[i] += before[i];
        }
        kernels::gemm(rig.exec, a, b, c, options);
        EXPECT_TRUE(Near(c, want, tolerance(size.k, out)))
            << name_of(isa) << " " << size.m << " x " << size.n << " x " << size.k << " "
            << name_of(in) << " to " << name_of(out) << " transposed "
            << (options.a == Transpose::kYes) << (options.b == Transpose::kYes);
      });
    }
  }
}

TEST(Gemm, ReadsAndWritesColumnBlocksOfWiderMatrices) {
  Rig rig(2);
  const Tensor a = rig.normal("a", {23, 90}), b = rig.normal("b", {41, 70});
  const Tensor c = rig.normal("c", {23, 60});
  const std::vector<double> before = numbers(c);
  const ConstView left = ConstView(a).columns(11, 41), right = ConstView(b).columns(3, 29);
  kernels::gemm(rig.exec, left, right, c.view().columns(7, 29));
  EXPECT_TRUE(Near(c.view().columns(7, 29), naive(left, right, {}), tolerance(41, DType::kF32)));
  const std::vector<double> after = numbers(c);
  for (size_t i = 0; i < after.size(); ++i) {
    const bool inside = i % 60 >= 7 && i % 60 < 36;
    EXPECT_TRUE(inside || after[i] == before[i]) << "outside the block, " << i;
  }
}

TEST(Gemm, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const Isa isa : available_isas()) {
    Rig one(1, isa), two(2, isa), three(3, isa);
    for (const Case size : {Case{1, 300, 400}, {150, 110, 400}, {200, 70, 401}}) {
      for_every_form([&](DType in, DType out, GemmOptions options) {
        const auto [a, b, want] = operands(one, size, in, out, options);
        std::vector<Tensor> results;
        for (Rig* rig : {&two, &three}) {
          results.push_back(rig->exec.empty({size.m, size.n}, out));
          std::memcpy(host_bytes(results.back()), host_bytes(want),
                      static_cast<size_t>(want.bytes()));
          kernels::gemm(rig->exec, a, b, results.back(), options);
        }
        kernels::gemm(one.exec, a, b, want, options);
        EXPECT_TRUE(SameBits(results[0], want)) << "2 threads, " << name_of(isa);
        EXPECT_TRUE(SameBits(results[1], want)) << "3 threads, " << name_of(isa);
      });
    }
  }
}

TEST(Gemm, GivesARowTheSameBitsAloneAndAmongOthers) {
  for (const Isa isa : available_isas()) {
    Rig rig(2, isa);
    for (const DType in : {DType::kF32, DType::kBF16}) {
      const auto [a, b, c] = operands(rig, {301, 150, 1100}, in, DType::kF32, {});
      kernels::gemm(rig.exec, a, b, c);
      const PackedMatrices packed(rig.exec, b, Transpose::kNo);
      for (const int64_t rows : {1, 2, 3, 5, 16, 150}) {
        const int64_t first = 301 - rows;
        const Tensor plain = rig.exec.empty({rows, 150}), with_packed = rig.exec.empty({rows, 150});
        kernels::gemm(rig.exec, a.row_range(first, rows), b, plain);
        kernels::gemm(rig.exec, a.row_range(first, rows), packed, with_packed);
        EXPECT_TRUE(SameBits(plain, c.row_range(first, rows))) << rows << " rows " << name_of(isa);
        EXPECT_TRUE(SameBits(with_packed, c.row_range(first, rows))) << rows << name_of(isa);
      }
    }
  }
}

TEST(Gemm, MultipliesPackedMatricesLikePlainOnes) {
  for (const Isa isa : available_isas()) {
    Rig rig(2, isa);
    for (const Case size : kCases) {
      for_every_form([&](DType in, DType out, GemmOptions options) {
        if (options.a == Transpose::kYes) return;
        const auto [a, b, want] = operands(rig, size, in, out, options);
        const Tensor c = rig.normal("c", {size.m, size.n}, 1.0, out);
        kernels::gemm(rig.exec, a, b, want, options);
        kernels::gemm(rig.exec, a, PackedMatrices(rig.exec, b, options.b), c, options.write);
        EXPECT_TRUE(SameBits(c, want)) << name_of(isa) << " " << size.m << " x " << size.n << " x "
                                       << size.k << " " << name_of(in) << " to " << name_of(out);
      });
    }
  }
}

TEST(Gemm, MultipliesEveryMatrixOfABatch) {
  for (const Isa isa : available_isas()) {
    Rig rig(2, isa);
    for_every_form([&](DType in, DType out, GemmOptions options) {
      const Case size{13, 21, 34};
      const Shape left = options.a == Transpose::kYes ? Shape{5, 34, 13} : Shape{5, 13, 34};
      const Shape right = options.b == Transpose::kYes ? Shape{5, 21, 34} : Shape{5, 34, 21};
      const Tensor a = rig.normal("a", left, 1.0, in), b = rig.normal("b", right, 1.0, in);
      const Tensor c = rig.normal("c", {5, 13, 21}, 1.0, out);
      const Tensor want = rig.normal("c", {5, 13, 21}, 1.0, out);
      for (int64_t i = 0; i < 5; ++i) {
        kernels::gemm(rig.exec, a.row(i), b.row(i), want.row(i), options);
      }
      kernels::batched_gemm(rig.exec, a, b, c, options);
      EXPECT_TRUE(SameBits(c, want)) << name_of(isa) << size.m;
    });
  }
}

TEST(Gemm, RefusesShapesThatDoNotFit) {
  Rig rig(1);
  const Tensor a = rig.normal("a", {3, 4}), b = rig.normal("b", {5, 6}),
               c = rig.normal("c", {3, 6});
  EXPECT_THROW(kernels::gemm(rig.exec, a, b, c), Error);
  const Tensor narrow = rig.normal("b", {4, 6}, 1.0, DType::kBF16);
  EXPECT_THROW(kernels::gemm(rig.exec, a, narrow, c), Error);
}

}  // namespace
}  // namespace weft::test
