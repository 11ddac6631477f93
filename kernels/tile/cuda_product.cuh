#pragma once

#include "kernels/tile/cuda_storage.cuh"

// The products of the CUDA engine: a warp multiplies blocks of 16 rows with tensor cores. Lane =
// 4 g + t throughout.
namespace weft::kernels::cuda {

inline constexpr int kBlockRows = 16;

// 16 x (8 fragments) entries of the result of a run, in the registers of one warp: this lane holds
// acc[f] = entries (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1) of each 16 x 8 fragment.
template <int fragments_>
struct Block {
  static constexpr int fragments = fragments_, columns = 8 * fragments;
  int i, j;  // of its first entry
  int lane;
  float acc[fragments][4];

  WEFT_TILE int row(int half) const { return i + lane / 4 + 8 * half; }
  WEFT_TILE int column(int fragment) const { return j + 8 * fragment + 2 * (lane % 4); }
  // f(i, j, x) for every entry of this lane, row by row.
  template <class F>
  WEFT_TILE void each(F f) {
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      WEFT_UNROLL
      for (int n = 0; n < fragments; ++n) {
        f(row(half), column(n), acc[n][2 * half]);
        f(row(half), column(n) + 1, acc[n][2 * half + 1]);
      }
    }
  }
};

// The left factor, 16 x depth at (i, k), and two fragments of the right one, depth x 16 at (k, j).
// `turned`: the operand is stored the other way round.
template <class Element>
struct Fragments;

template <>
struct Fragments<Bf16> {
  static constexpr int depth = 16;
  uint32_t a[4], b[4];

  template <bool turned, class Op>
  WEFT_TILE void load_a(const Op& op, int i, int k, int lane) {
    const int near = lane % 8, second = lane / 8 % 2 * 8, fourth = lane / 16 * 8;
    if constexpr (turned) {
      load_matrices_turned(a, op.at(k + near + fourth, i + second));
    } else {
      load_matrices(a, op.at(i + near + second, k + fourth));
    }
  }
  template <bool turned, class Op>
  WEFT_TILE void load_b(const Op& op, int k, int j, int lane) {
    const int near = lane % 8, second = lane / 8 % 2 * 8, fourth = lane / 16 * 8;
    if constexpr (turned) {
      load_matrices(b, op.at(j + near + fourth, k + second));
    } else {
      load_matrices_turned(b, op.at(k + near + second, j + fourth));
    }
  }
  WEFT_TILE void multiply_add(float (&left)[4], float (&right)[4]) const {
    multiply_add_pair(left, right, a, b);
  }
};

// f32 as two tf32 each, x = high + low up to 2^-22: three products, the smaller ones first.
template <>
struct Fragments<F32> {
  static constexpr int depth = 8;
  float a[4], a_low[4], b[4], b_low[4];

  WEFT_TILE static void split(float x, float& high, float& low) {
    high = to_tf32(x);
    low = to_tf32(x - high);
  }
  template <bool turned, class Op>
  WEFT_TILE void load_a(const Op& op, int i, int k, int lane) {
    WEFT_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int row = i + lane / 4 + r % 2 * 8, column = k + lane % 4 + r / 2 * 4;
      split(turned ? op(column, row) : op(row, column), a[r], a_low[r]);
    }
  }
  template <bool turned, class Op>
  WEFT_TILE void load_b(const Op& op, int k, int j, int lane) {
    WEFT_UNROLL
    for (int r = 0; r < 4; ++r) {
      const int row = k + lane % 4 + r % 2 * 4, column = j + lane / 4 + r / 2 * 8;
      split(turned ? op(column, row) : op(row, column), b[r], b_low[r]);
    }
  }
  WEFT_TILE void multiply_add(float (&left)[4], float (&right)[4]) const {
    multiply_add_pair(left, right, a, a_low, b, b_low);
  }
};

struct Range {
  int begin, end;
};

WEFT_TILE int clamped(int64_t x, int64_t low, int64_t high) {
  return static_cast<int>(x < low ? low : x > high ? high : x);
}

// The inner indices at which a banded factor can differ from zero in this block, in whole steps.
template <tile::Form form, int depth, int step, class Result>
WEFT_TILE Range inner_range(tile::Banded banded, tile::Band band, const Result& t) {
  int64_t first = 0, last = depth - 1;
  if (banded == tile::Banded::kA && form == tile::Form::kTn) {
    first = t.i - band.high, last = t.i + kBlockRows - 1 - band.low;
  } else if (banded == tile::Banded::kA) {
    first = t.i + band.low, last = t.i + kBlockRows - 1 + band.high;
  } else if (banded == tile::Banded::kB && form == tile::Form::kNt) {
    first = t.j + band.low, last = t.j + Result::columns - 1 + band.high;
  } else if (banded == tile::Banded::kB) {
    first = t.j - band.high, last = t.j + Result::columns - 1 - band.low;
  }
  return {clamped(first, 0, depth) / step * step,
          (clamped(last + 1, 0, depth) + step - 1) / step * step};
}

template <tile::Form form, class A, class B, class Result>
WEFT_TILE void apply_product(const tile::Product<form, A, B>& step, Result& t) {
  constexpr bool a_turned = form == tile::Form::kTn, b_turned = form == tile::Form::kNt;
  constexpr int depth = a_turned ? A::rows : A::columns;
  static_assert((A::uses & (a_turned ? tile::kAt : tile::kA)) != 0,
                "left operand: use not declared");
  static_assert((B::uses & (b_turned ? tile::kBt : tile::kB)) != 0,
                "right operand: use not declared");
  static_assert(depth == (b_turned ? B::columns : B::rows), "inner extents differ");
  Fragments<typename A::Element> f;
  const Range k = inner_range<form, depth, decltype(f)::depth>(step.banded, step.band, t);
  for (int at = k.begin; at < k.end; at += decltype(f)::depth) {
    f.template load_a<a_turned>(step.a, t.i, at, t.lane);
    WEFT_UNROLL
    for (int n = 0; n < Result::fragments; n += 2) {
      f.template load_b<b_turned>(step.b, at, t.j + 8 * n, t.lane);
      f.multiply_add(t.acc[n], t.acc[n + 1]);
    }
  }
}

}  // namespace weft::kernels::cuda
