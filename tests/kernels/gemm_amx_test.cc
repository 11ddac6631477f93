// The tile kernel of the AMX level with tiles emulated in C++: packing, blocking and edges are the
// very code that runs on the hardware.
#define WEFT_ISA_NAMESPACE emulated_amx
#include "kernels/matrix/cpu/isa/gemm_amx.h"
#include "core/host_access.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/matrix/cpu/gemm_driver.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

using kernels::GemmProduct;
using kernels::Write;
constexpr const kernels::GemmKernels& kKernels =
    kernels::emulated_amx::kAmxKernels<kernels::emulated_amx::EmulatedTiles>;

struct Case {
  int64_t m, n, k;
  bool turn_a = false, turn_b = false;
  DType out = DType::kF32;
  Write write = Write::kReplace;
};

struct Operands {
  Tensor a, b, c;
};

Operands operands(Rig& rig, const Case& s) {
  return {rig.normal("a", s.turn_a ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1.0, DType::kBF16),
          rig.normal("b", s.turn_b ? Shape{s.n, s.k} : Shape{s.k, s.n}, 1.0, DType::kBF16),
          rig.normal("c", {s.m, s.n}, 1.0, s.out)};
}

GemmProduct product_of(const Operands& o, const Case& s) {
  return {kernels::operand(o.a, !s.turn_a),
          kernels::operand(o.b, s.turn_b),
          s.m,
          s.n,
          s.k,
          nullptr,
          host_bytes(o.c),
          s.n};
}

std::vector<double> naive(const Operands& o, const Case& s) {
  const std::vector<double> a = numbers(o.a), b = numbers(o.b);
  std::vector<double> c = numbers(o.c);
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = s.write == Write::kAccumulate ? c[i * s.n + j] : 0;
      for (int64_t p = 0; p < s.k; ++p) {
        sum += a[s.turn_a ? p * s.m + i : i * s.k + p] * b[s.turn_b ? j * s.k + p : p * s.n + j];
      }
      c[i * s.n + j] = sum;
    }
  }
  return c;
}

double tolerance(const Case& s) {
  return 4 * 6e-8 * std::sqrt(static_cast<double>(s.k) + 1) + (s.out == DType::kBF16 ? 4e-3 : 0);
}

void check(const Case& s) {
  Rig rig(1);
  const Operands o = operands(rig, s);
  const std::vector<double> want = naive(o, s);
  const GemmProduct product = product_of(o, s);
  kernels::run_products(rig.exec, kKernels, {&product, 1}, {s.out, s.write});
  EXPECT_TRUE(Near(o.c, want, tolerance(s)))
      << s.m << " x " << s.n << " x " << s.k << " turned " << s.turn_a << s.turn_b;
}

TEST(AmxGemm, MatchesNaiveLoopsInEveryForm) {
  // One; less than a tile; one tile and one more; one block and one more; several; nothing.
  for (const Case size : {Case{1, 1, 1},
                          {3, 5, 7},
                          {17, 16, 32},
                          {32, 32, 32},
                          {33, 33, 33},
                          {101, 67, 131},
                          {1, 64, 96},
                          {16, 31, 65},
                          {5, 3, 0},
                          {0, 3, 4}}) {
    for (const int turned : {0, 1, 2, 3}) {
      Case s = size;
      s.turn_a = (turned & 1) != 0;
      s.turn_b = (turned & 2) != 0;
      check(s);
      s.write = Write::kAccumulate;
      check(s);
      s.write = Write::kReplace;
      s.out = DType::kBF16;
      check(s);
    }
  }
}

TEST(AmxGemm, AddsUpBlocksOfK) {
  check({34, 33, 2100, false, true, DType::kBF16, Write::kReplace});
  check({34, 33, 2100, true, false, DType::kF32, Write::kAccumulate});
}

TEST(AmxGemm, PacksTheRightOperandOnceForManyRows) {
  check({300, 40, 50});  // more rows than a tile has
  check({300, 40, 50, true, true});
}

TEST(AmxGemm, GivesARowTheSameBitsAloneAndAmongOthers) {
  Rig rig(2);
  const Case s{300, 45, 1200};
  const Operands o = operands(rig, s);
  const GemmProduct all = product_of(o, s);
  kernels::run_products(rig.exec, kKernels, {&all, 1}, {});
  for (const int64_t row : {int64_t{0}, int64_t{31}, int64_t{299}}) {
    const Tensor alone = rig.exec.empty({1, s.n});
    GemmProduct one = all;
    one.a = kernels::operand(o.a, true, row);
    one.m = 1;
    one.c = host_bytes(alone);
    kernels::run_products(rig.exec, kKernels, {&one, 1}, {});
    EXPECT_TRUE(SameBits(alone, o.c.row_range(row, 1)));
  }
}

}  // namespace
}  // namespace weft::test
