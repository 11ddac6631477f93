#pragma once

#include "kernels/tile/cpu_storage.h"

// The products of the CPU engine: strips of kStripRows x kStripColumns accumulated in registers.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

// One strip of the result of a run, at rows [i, i + rows) and columns [j, j + kStripColumns);
// between steps it waits in the L1.
struct Strip {
  int64_t i = 0, j = 0;
  int64_t height = 0;             // rows of the strip, padding included
  int64_t rows = 0, columns = 0;  // without padding
  bool fresh = true;              // nothing accumulated yet: `acc` counts as zero
  alignas(64) float acc[kStripRows * kStripColumns];

  WEFT_INLINE float* at(int64_t r) { return acc + r * kStripColumns; }
};

struct Factors {
  const float* a;
  int64_t a_stride;
  const float* b;
  int64_t b_stride;
  int64_t depth;
};

// acc [height, kStripColumns] (+)= a b over `depth`. The left factor is read one number at a time,
// so its transpose costs nothing: a(r, k) lies at a[r * stride + k], or at a[k * stride + r] if
// turned.
template <int height, bool turned>
[[gnu::noinline]] void multiply(const Factors& f, float* acc, bool fresh) {
  VF sum[height][2];
#pragma GCC unroll 12
  for (int r = 0; r < height; ++r) {
    sum[r][0] = fresh ? VF{} : get_floats(acc + r * kStripColumns);
    sum[r][1] = fresh ? VF{} : get_floats(acc + r * kStripColumns + kLanes);
  }
  const int64_t row_step = turned ? 1 : f.a_stride, depth_step = turned ? f.a_stride : 1;
  const float* a = f.a;
  const float* b = f.b;
  for (int64_t k = 0; k < f.depth; ++k) {
    const VF b0 = get_floats(b), b1 = get_floats(b + kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < height; ++r) {
      const VF x = splat(a[r * row_step]);
      sum[r][0] += x * b0;
      sum[r][1] += x * b1;
    }
    a += depth_step;
    b += f.b_stride;
  }
#pragma GCC unroll 12
  for (int r = 0; r < height; ++r) {
    put_floats(acc + r * kStripColumns, sum[r][0]);
    put_floats(acc + r * kStripColumns + kLanes, sum[r][1]);
  }
}

template <bool turned>
WEFT_INLINE void multiply_strip(const Factors& f, Strip& t) {
  if (t.height == kStripRows) {
    multiply<kStripRows, turned>(f, t.acc, t.fresh);
  } else if (kStripRows == 12 && t.height == 8) {
    multiply<kStripRows == 12 ? 8 : 4, turned>(f, t.acc, t.fresh);
  } else {
    multiply<4, turned>(f, t.acc, t.fresh);
  }
  t.fresh = false;
}

struct Range {
  int64_t begin, end;
};

// The inner indices at which a banded factor can differ from zero in this strip.
template <tile::Form form>
WEFT_INLINE Range inner_range(tile::Banded banded, const tile::Band& band, const Strip& t,
                              int64_t depth) {
  int64_t first = 0, last = depth - 1;
  if (banded == tile::Banded::kA && form == tile::Form::kTn) {
    first = t.i - band.high, last = t.i + t.height - 1 - band.low;
  } else if (banded == tile::Banded::kA) {
    first = t.i + band.low, last = t.i + t.height - 1 + band.high;
  } else if (banded == tile::Banded::kB && form == tile::Form::kNt) {
    first = t.j + band.low, last = t.j + kStripColumns - 1 + band.high;
  } else if (banded == tile::Banded::kB) {
    first = t.j - band.high, last = t.j + kStripColumns - 1 - band.low;
  }
  first = first < 0 ? 0 : first;
  last = last > depth - 1 ? depth - 1 : last;
  return {first, last < first ? first : last + 1};
}

template <tile::Form form, class A, class B>
WEFT_INLINE void apply(const tile::Product<form, A, B>& step, Strip& t) {
  constexpr bool turned = form == tile::Form::kTn;
  static_assert((A::uses & (turned ? tile::kAt : tile::kA)) != 0, "left operand: use not declared");
  static_assert((B::uses & (form == tile::Form::kNt ? tile::kBt : tile::kB)) != 0,
                "right operand: use not declared");
  const Matrix& a = step.a;
  const Matrix& b = step.b;
  const Range k = inner_range<form>(step.banded, step.band, t, turned ? a.rows : a.columns);
  Factors f;
  f.a_stride = a.stride;
  f.a = turned ? a.plain + k.begin * a.stride + t.i : a.plain + t.i * a.stride + k.begin;
  f.b_stride = form == tile::Form::kNt ? b.turned_stride : b.stride;
  f.b = (form == tile::Form::kNt ? b.turned : b.plain) + k.begin * f.b_stride + t.j;
  f.depth = k.end - k.begin;
  multiply_strip<turned>(f, t);
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
