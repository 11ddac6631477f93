#include <gtest/gtest.h>

#include <cmath>

#include "core/memory/host_table.h"
#include "kernels/matrix/gemm.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

using kernels::PackedMatrices;
using kernels::Transpose;
using kernels::Write;

double tolerance(int64_t k, DType out) {
  const double sum = 4 * 6e-8 * std::sqrt(static_cast<double>(k) + 1);
  return sum + (out == DType::kBF16 ? 4e-3 : 0);
}

// A permutation of the rows, from the outside: i * 17 mod a prime above the count, larger ones
// skipped.
std::vector<int32_t> shuffled(int64_t rows) {
  std::vector<int32_t> out;
  for (int64_t i = 1; i < 1009; ++i) {
    if (i * 17 % 1009 <= rows) out.push_back(static_cast<int32_t>(i * 17 % 1009 - 1));
  }
  return out;
}

struct Groups {
  std::vector<int64_t> offsets;
  int64_t k, n;
};

// Empty first, middle and last; one takes all; primes; many rows in one and one row in another.
std::vector<Groups> group_cases() {
  return {{{0, 0, 7, 7, 20, 20}, 33, 19},         {{0, 211}, 257, 40}, {{0, 0, 131, 131}, 64, 32},
          {{0, 2, 5, 16, 29, 29 + 101}, 300, 17}, {{0, 0, 0}, 5, 5},   {{0, 3, 4}, 0, 6}};
}

void check_grouped(Rig& rig, const Groups& groups, DType in, DType out, Transpose turn,
                   bool gather) {
  const auto count = static_cast<int64_t>(groups.offsets.size()) - 1;
  const int64_t rows = groups.offsets.back(), k = groups.k, n = groups.n;
  const Tensor a = rig.normal("a", {rows, k}, 1.0, in);
  const bool turned = turn == Transpose::kYes;
  const Tensor b = rig.normal("b", turned ? Shape{count, n, k} : Shape{count, k, n}, 1.0, in);
  const Tensor c = rig.normal("c", {rows, n}, 1.0, out);
  const std::vector<int32_t> index = gather ? shuffled(rows) : std::vector<int32_t>{};
  const Write write = out == DType::kF32 ? Write::kAccumulate : Write::kReplace;
  const std::vector<double> x = numbers(a), y = numbers(b);
  std::vector<double> want = numbers(c);
  for (int64_t g = 0; g < count; ++g) {
    for (int64_t i = groups.offsets[g]; i < groups.offsets[g + 1]; ++i) {
      const int64_t from = gather ? index[i] : i;
      for (int64_t j = 0; j < n; ++j) {
        double sum = write == Write::kAccumulate ? want[i * n + j] : 0;
        for (int64_t p = 0; p < k; ++p) {
          sum += x[from * k + p] * y[g * k * n + (turned ? j * k + p : p * n + j)];
        }
        want[i * n + j] = sum;
      }
    }
  }
  const PackedMatrices packed(rig.exec, b, turn);
  const HostTable<int32_t> table(index);
  kernels::grouped_gemm(rig.exec, a, groups.offsets, packed, c, write,
                        gather ? table.view(rig.exec) : ConstView{});
  EXPECT_TRUE(Near(c, want, tolerance(k, out)))
      << name_of(rig.exec.isa) << " " << rows << name_of(in);
}

TEST(GroupedGemm, MatchesNaiveLoops) {
  for (const Isa isa : available_isas()) {
    Rig rig(2, isa);
    for (const Groups& groups : group_cases()) {
      for (const DType in : {DType::kF32, DType::kBF16}) {
        for (const Transpose turn : {Transpose::kNo, Transpose::kYes}) {
          check_grouped(rig, groups, in, DType::kF32, turn, false);
          check_grouped(rig, groups, in, DType::kF32, turn, true);
          check_grouped(rig, groups, in, DType::kBF16, turn, true);
        }
      }
    }
  }
}

TEST(GroupedGemm, GivesARowTheSameBitsWhateverTheGroupsAndThreads) {
  for (const Isa isa : available_isas()) {
    Rig rig(1, isa);
    const Tensor a = rig.normal("a", {331, 400}), b = rig.normal("b", {3, 90, 400});
    const Tensor want = rig.exec.empty({331, 90});
    const PackedMatrices packed(rig.exec, b, Transpose::kYes);
    // All rows through the middle matrix; then only rows [100, 207) of them.
    kernels::grouped_gemm(rig.exec, a, std::vector<int64_t>{0, 0, 331, 331}, packed, want);
    for (const int threads : {1, 2, 3}) {
      Rig other(threads, isa);
      const Tensor c = other.exec.empty({331, 90});
      kernels::grouped_gemm(other.exec, a, std::vector<int64_t>{0, 100, 207, 331}, packed, c);
      EXPECT_TRUE(SameBits(c.row_range(100, 107), want.row_range(100, 107)))
          << threads << " threads, " << name_of(isa);
    }
  }
}

TEST(GroupedGemm, RefusesOffsetsThatDoNotCoverTheRows) {
  Rig rig(1);
  const Tensor a = rig.normal("a", {6, 4}), b = rig.normal("b", {2, 4, 3}),
               c = rig.exec.empty({6, 3});
  const PackedMatrices packed(rig.exec, b, Transpose::kNo);
  for (const auto& offsets : {std::vector<int64_t>{0, 6}, {0, 2, 5}, {1, 2, 6}, {0, 7, 6}}) {
    EXPECT_THROW(kernels::grouped_gemm(rig.exec, a, offsets, packed, c), Error);
  }
}

struct WeightCase {
  std::vector<int64_t> offsets;
  int64_t m, n;
  DType in, out;
  bool gather_a, gather_b;
};

void check_weights(Rig& rig, const WeightCase& w) {
  const auto count = static_cast<int64_t>(w.offsets.size()) - 1;
  const int64_t rows = w.offsets.back(), m = w.m, n = w.n;
  const Tensor a = rig.normal("a", {rows, m}, 1.0, w.in), b = rig.normal("b", {rows, n}, 1.0, w.in);
  const Tensor c = rig.normal("c", {count, m, n}, 1.0, w.out);
  const std::vector<int32_t> index = shuffled(rows);
  const std::vector<double> x = numbers(a), y = numbers(b);
  std::vector<double> want = numbers(c);
  const Write write = w.out == DType::kF32 ? Write::kAccumulate : Write::kReplace;
  for (int64_t g = 0; g < count; ++g) {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double& sum = want[(g * m + i) * n + j];
        if (write == Write::kReplace) sum = 0;
        for (int64_t p = w.offsets[g]; p < w.offsets[g + 1]; ++p) {
          sum += x[(w.gather_a ? index[p] : p) * m + i] * y[(w.gather_b ? index[p] : p) * n + j];
        }
      }
    }
  }
  kernels::GroupedWeightOptions options{write, {}, {}};
  const HostTable<int32_t> table(index);
  if (w.gather_a) options.gather_a = table.view(rig.exec);
  if (w.gather_b) options.gather_b = table.view(rig.exec);
  kernels::grouped_gemm_weights(rig.exec, a, b, w.offsets, c, options);
  EXPECT_TRUE(Near(c, want, tolerance(rows, w.out)))
      << name_of(rig.exec.isa) << " " << rows << name_of(w.in);
}

TEST(GroupedGemmWeights, MatchesNaiveLoops) {
  for (const Isa isa : available_isas()) {
    Rig rig(2, isa);
    for (const Groups& groups : group_cases()) {
      for (const DType in : {DType::kF32, DType::kBF16}) {
        for (const DType out : {DType::kF32, DType::kBF16}) {
          for (const int gathers : {0, 1, 2, 3}) {
            check_weights(rig, {groups.offsets, groups.k / 2 + 1, groups.n, in, out,
                                (gathers & 1) != 0, (gathers & 2) != 0});
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
