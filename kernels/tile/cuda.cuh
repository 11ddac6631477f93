#pragma once

#include "kernels/tile/cuda_engine.cuh"

// The CUDA engine: runs, and what else joins the threads of a block. This is the header to include.
namespace weft::kernels::cuda {

// Warps take the blocks of the result in turn, and take a block through all steps.
template <class Element>
template <class... Steps>
WEFT_TILE void Engine<Element>::run(tile::Band band, const Steps&... steps) {
  using Extents = typename FirstExtent<Steps...>::Type;
  constexpr int reductions = (0 + ... + is_reduction<Steps>);
  static_assert(Extents::rows > 0, "no step of this run has extents: take an operand");
  static_assert(reductions <= 1, "a run has room for one reduction (Scratch)");
  static_assert(reductions == 0 ||
                (Extents::rows <= Scratch::kExtent && Extents::columns <= Scratch::kExtent));
  using Result = Block<Extents::columns % 32 == 0 ? 4 : 2>;
  constexpr int across = Extents::columns / Result::columns;
  constexpr int blocks = Extents::rows / kBlockRows * across;
  for (int block = thread_ / 32; block < blocks; block += kWarps) {
    Result t;
    t.i = block / across * kBlockRows;
    t.j = block % across * Result::columns;
    t.lane = thread_ % 32;
    if (t.j - (t.i + kBlockRows - 1) > band.high || t.j + Result::columns - 1 - t.i < band.low) {
      (skip(steps, t), ...);
      continue;
    }
    t.each([](int, int, float& x) { x = 0.0f; });
    (apply(steps, t), ...);
  }
  __syncthreads();
  (finish<Extents, Result>(steps), ...);
}

// The four lanes of a row add up their columns.
template <class Element>
template <class Vec, class F, class Result>
WEFT_TILE void Engine<Element>::apply(const tile::RowSum<Vec, F>& step, Result& t) {
  WEFT_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int i = t.row(half);
    float sum = 0;
    WEFT_UNROLL
    for (int n = 0; n < Result::fragments; ++n) {
      sum += step.f(i, t.column(n), t.acc[n][2 * half]);
      sum += step.f(i, t.column(n) + 1, t.acc[n][2 * half + 1]);
    }
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    if (t.lane % 4 == 0) *row_part(t, half) = sum;
  }
}

// The eight lanes of a column join their rows.
template <class Element>
template <class F, class Result, class Join>
WEFT_TILE void Engine<Element>::reduce_columns(const F& f, Result& t, float none, Join join) {
  WEFT_UNROLL
  for (int n = 0; n < Result::fragments; ++n) {
    WEFT_UNROLL
    for (int e = 0; e < 2; ++e) {
      const int j = t.column(n) + e;
      float x = join(none, f(t.row(0), j, t.acc[n][e]));
      x = join(x, f(t.row(1), j, t.acc[n][2 + e]));
      for (int distance = 4; distance < 32; distance *= 2) {
        x = join(x, __shfl_xor_sync(kAllLanes, x, distance));
      }
      if (t.lane < 4) column_part(t, n)[e] = x;
    }
  }
}

// The first warp: every lane sums its stretch, the stretches before it are added.
template <class Element>
template <int size, class Place>
WEFT_TILE void Engine<Element>::running_sum(cuda::Vector<size>& v, Place place) {
  constexpr int stretch = (size + 31) / 32;
  if (thread_ < 32) {
    float sum = 0;
    for (int i = thread_ * stretch; i < (thread_ + 1) * stretch && i < size; ++i) {
      sum += v.data[place(i)];
      v.data[place(i)] = sum;
    }
    float before = sum;  // of all stretches up to this one
    for (int distance = 1; distance < 32; distance *= 2) {
      const float x = __shfl_up_sync(kAllLanes, before, distance);
      if (thread_ >= distance) before += x;
    }
    before = __shfl_up_sync(kAllLanes, before, 1);
    for (int i = thread_ * stretch; i < (thread_ + 1) * stretch && i < size; ++i) {
      if (thread_ > 0) v.data[place(i)] += before;
    }
  }
  __syncthreads();
}

template <class Element>
WEFT_TILE float Engine<Element>::inner_product(const In& a, const In& b) {
  float sum = 0;
  for (int at = thread_; at < a.rows * a.columns; at += kThreads) {
    const int i = at / a.columns, j = at % a.columns;
    sum += entry(a, i, j) * entry(b, i, j);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  }
  if (thread_ % 32 == 0) scratch_.partial[thread_ / 32] = sum;
  __syncthreads();
  float total = 0;
  for (int warp = 0; warp < kWarps; ++warp) total += scratch_.partial[warp];
  __syncthreads();
  return total;
}

}  // namespace weft::kernels::cuda
