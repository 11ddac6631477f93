#pragma once

#include <cfloat>

#include "kernels/tile/cuda_product.cuh"

// The words of the CUDA engine; kernels/tile/cuda.cuh has the longer ones. A thread block of
// kThreads runs a program together. Operands lie in shared memory, the result of a run in the
// registers of the warps, block by block. Every call ends with a barrier of the block, so a program
// needs none; calls must be reached by all threads. Everything has a fixed order: no atomics.
namespace weft::kernels::cuda {

inline constexpr int kThreads = 256, kWarps = kThreads / 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// Shared memory of the engine itself: partial sums of one reduction per run, of up to 128 rows and
// columns.
struct Scratch {
  static constexpr int kExtent = 128;
  float partial[kExtent / kBlockRows * kExtent];
};

template <class Space>
struct Shared {
  Space space;
  Scratch scratch;
};

// Extents of a result, from the first step that has any.
template <class Step>
struct Extent {
  static constexpr int rows = 0, columns = 0;
};
template <tile::Form form, class A, class B>
struct Extent<tile::Product<form, A, B>> {
  static constexpr int rows = form == tile::Form::kTn ? A::columns : A::rows;
  static constexpr int columns = form == tile::Form::kNt ? B::rows : B::columns;
};
template <class Element, int rows_, int columns_, unsigned uses>
struct Extent<tile::Take<Operand<Element, rows_, columns_, uses>>> {
  static constexpr int rows = rows_, columns = columns_;
};
template <class First, class... Rest>
struct FirstExtent {
  using Type = Extent<First>;
};
template <class First, class Second, class... Rest>
requires(Extent<First>::rows == 0) struct FirstExtent<First, Second, Rest...>
    : FirstExtent<Second, Rest...> {
};

template <class Step>
inline constexpr bool is_reduction = false;
template <class Vec, class F>
inline constexpr bool is_reduction<tile::RowSum<Vec, F>> = true;
template <class Vec, class F>
inline constexpr bool is_reduction<tile::ColumnSum<Vec, F>> = true;
template <class Vec, class F>
inline constexpr bool is_reduction<tile::ColumnMax<Vec, F>> = true;

// Element: Bf16 or F32, what operands are made of. Views may hold either.
template <class Element>
class Engine {
 public:
  using In = cuda::In;
  using Out = cuda::Out;
  using InVector = cuda::InVector;
  using OutVector = cuda::OutVector;
  template <class S, auto rows, auto columns, unsigned uses>
  using Operand =
      cuda::Operand<Element, static_cast<int>(rows()), static_cast<int>(columns()), uses>;
  template <class S, auto size>
  using Vector = cuda::Vector<static_cast<int>(size())>;

  WEFT_TILE explicit Engine(Scratch& scratch)
      : scratch_(scratch), thread_(static_cast<int>(threadIdx.x)) {}

  WEFT_TILE static float number(float x) { return x; }
  WEFT_TILE static float exp(float x) { return expf(x); }
  WEFT_TILE static float exp_down(float x) { return expf(x); }
  WEFT_TILE static float log(float x) { return logf(x); }
  WEFT_TILE static float select(bool mask, float yes, float no) { return mask ? yes : no; }
  WEFT_TILE static bool inside(tile::Band band, int i, int j) {
    return j - i >= band.low && j - i <= band.high;
  }
  WEFT_TILE static float at(const In& view, int i, int j) { return entry(view, i, j); }

  template <class Op, class F = tile::Same>
  WEFT_TILE void load(Op& op, const In& view, F f = {}) {
    fill_operand(op, [&](int i, int j) {
      const bool there = i < view.rows && j < view.columns;
      return there ? f(i, j, entry(view, i, j)) : 0.0f;
    });
  }
  template <class Op>
  WEFT_TILE void borrow(Op& op, const In& view) {
    load(op, view);
  }
  template <class Op>
  WEFT_TILE void clear(Op& op) {
    fill_operand(op, [](int, int) { return 0.0f; });
  }
  template <class View>
  WEFT_TILE void soon(const View&) {}

  template <int size>
  WEFT_TILE void load(cuda::Vector<size>& v, const InVector& view) {
    fill(v, [&](int i) {
      return view.data != nullptr && i < view.count ? view.data[i * view.stride] : 0.0f;
    });
  }
  template <int size>
  WEFT_TILE void save(const cuda::Vector<size>& v, const OutVector& view) {
    if (view.data != nullptr) {
      for (int i = thread_; i < size && i < view.count; i += kThreads) {
        view.data[i * view.stride] = v[i];
      }
    }
    __syncthreads();
  }
  template <int size, class F>
  WEFT_TILE void fill(cuda::Vector<size>& v, F f) {
    for (int i = thread_; i < size; i += kThreads) v.data[i] = f(i);
    __syncthreads();
  }
  template <int size>
  WEFT_TILE void cumsum(cuda::Vector<size>& v) {
    running_sum(v, [](int i) { return i; });
  }
  template <int size>
  WEFT_TILE void reverse_cumsum(cuda::Vector<size>& v) {
    running_sum(v, [](int i) { return size - 1 - i; });
  }
  template <int size>
  WEFT_TILE void add_to_last(cuda::Vector<size>& v, float x) {
    if (thread_ == 0) v.data[size - 1] += x;
    __syncthreads();
  }
  template <int size>
  WEFT_TILE float total(const cuda::Vector<size>& v) {
    float sum = 0;
    for (int i = 0; i < size; ++i) sum += v[i];
    __syncthreads();
    return sum;
  }
  // Sum over all entries of a(i, j) b(i, j), the same for every thread; for drivers.
  WEFT_TILE float inner_product(const In& a, const In& b);

  template <class... Steps>
  WEFT_TILE void run(tile::Band band, const Steps&... steps);

 private:
  template <class Op, class F>
  WEFT_TILE void fill_operand(Op& op, F f) {
    for (int pair = thread_; pair < Op::rows * Op::columns / 2; pair += kThreads) {
      const int i = pair / (Op::columns / 2), j = pair % (Op::columns / 2) * 2;
      op.set_pair(i, j, f(i, j), f(i, j + 1));
    }
    __syncthreads();
  }

  template <int size, class Place>
  WEFT_TILE void running_sum(cuda::Vector<size>& v, Place place);

  // The steps, on one block. What is not a product goes entry by entry.
  template <tile::Form form, class A, class B, class Result>
  WEFT_TILE void apply(const tile::Product<form, A, B>& step, Result& t) {
    apply_product(step, t);
  }
  template <class Source, class Result>
  WEFT_TILE void apply(const tile::Take<Source>& step, Result& t) {
    t.each([&](int i, int j, float& x) { x = entry(step.source, i, j); });
  }
  template <class F, class Result>
  WEFT_TILE void apply(const tile::Map<F>& step, Result& t) {
    t.each([&](int i, int j, float& x) { x = step.f(i, j, x); });
  }
  template <class F, class Result>
  WEFT_TILE void apply(const tile::Store<Out, F>& step, Result& t) {
    t.each([&](int i, int j, float x) { set_entry(step.view, i, j, step.f(i, j, x)); });
  }
  template <class F, class Result>
  WEFT_TILE void apply(const tile::StoreTurned<Out, F>& step, Result& t) {
    t.each([&](int i, int j, float x) { set_entry(step.view, j, i, step.f(i, j, x)); });
  }
  template <class Op, class F, class Result>
  WEFT_TILE void apply(const tile::Put<Op, F>& step, Result& t) {
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      WEFT_UNROLL
      for (int n = 0; n < Result::fragments; ++n) {
        const int i = t.row(half), j = t.column(n);
        step.op.set_pair(i, j, step.f(i, j, t.acc[n][2 * half]),
                         step.f(i, j + 1, t.acc[n][2 * half + 1]));
      }
    }
  }
  template <class Vec, class F, class Result>
  WEFT_TILE void apply(const tile::RowSum<Vec, F>& step, Result& t);
  template <class Vec, class F, class Result>
  WEFT_TILE void apply(const tile::ColumnSum<Vec, F>& step, Result& t) {
    reduce_columns(step.f, t, 0.0f, [](float x, float y) { return x + y; });
  }
  template <class Vec, class F, class Result>
  WEFT_TILE void apply(const tile::ColumnMax<Vec, F>& step, Result& t) {
    reduce_columns(step.f, t, -FLT_MAX, [](float x, float y) { return fmaxf(x, y); });
  }
  template <class F, class Result, class Join>
  WEFT_TILE void reduce_columns(const F& f, Result& t, float none, Join join);

  // Result of a block outside the band: zeros where an operand is put, nothing to add.
  template <class Step, class Result>
  WEFT_TILE void skip(const Step&, const Result&) {}
  template <class Op, class F, class Result>
  WEFT_TILE void skip(const tile::Put<Op, F>& step, const Result& t) {
    WEFT_UNROLL
    for (int n = 0; n < Result::fragments; ++n) {
      step.op.set_pair(t.row(0), t.column(n), 0.0f, 0.0f);
      step.op.set_pair(t.row(1), t.column(n), 0.0f, 0.0f);
    }
  }
  template <class Vec, class F, class Result>
  WEFT_TILE void skip(const tile::RowSum<Vec, F>&, const Result& t) {
    if (t.lane % 4 == 0) *row_part(t, 0) = *row_part(t, 1) = 0.0f;
  }
  template <class Vec, class F, class Result>
  WEFT_TILE void skip(const tile::ColumnSum<Vec, F>&, const Result& t) {
    skip_columns(t, 0.0f);
  }
  template <class Vec, class F, class Result>
  WEFT_TILE void skip(const tile::ColumnMax<Vec, F>&, const Result& t) {
    skip_columns(t, -FLT_MAX);
  }
  template <class Result>
  WEFT_TILE void skip_columns(const Result& t, float none) {
    if (t.lane >= 4) return;
    for (int n = 0; n < Result::fragments; ++n) column_part(t, n)[0] = column_part(t, n)[1] = none;
  }

  // Partial results: of row i in the blocks that begin at column j, of column j in those at row i.
  template <class Result>
  WEFT_TILE float* row_part(const Result& t, int half) {
    return scratch_.partial + t.j / Result::columns * Scratch::kExtent + t.row(half);
  }
  template <class Result>
  WEFT_TILE float* column_part(const Result& t, int fragment) {
    return scratch_.partial + t.i / kBlockRows * Scratch::kExtent + t.column(fragment);
  }

  // After the last block: partial results are joined in order.
  template <class Extents, class Result, class Step>
  WEFT_TILE void finish(const Step&) {}
  template <class Extents, class Result, class Vec, class F>
  WEFT_TILE void finish(const tile::RowSum<Vec, F>& step) {
    static_assert(Extents::rows == Vec::size);
    join_parts<Extents::columns / Result::columns>(step.vec,
                                                   [](float x, float y) { return x + y; });
  }
  template <class Extents, class Result, class Vec, class F>
  WEFT_TILE void finish(const tile::ColumnSum<Vec, F>& step) {
    static_assert(Extents::columns == Vec::size);
    join_parts<Extents::rows / kBlockRows>(step.vec, [](float x, float y) { return x + y; });
  }
  template <class Extents, class Result, class Vec, class F>
  WEFT_TILE void finish(const tile::ColumnMax<Vec, F>& step) {
    static_assert(Extents::columns == Vec::size);
    join_parts<Extents::rows / kBlockRows>(step.vec, [](float x, float y) { return fmaxf(x, y); });
  }
  template <int parts, class Vec, class Join>
  WEFT_TILE void join_parts(Vec& v, Join join) {
    for (int i = thread_; i < Vec::size; i += kThreads) {
      float x = scratch_.partial[i];
      for (int p = 1; p < parts; ++p) x = join(x, scratch_.partial[p * Scratch::kExtent + i]);
      v.data[i] = join(v.data[i], x);
    }
    __syncthreads();
  }

  Scratch& scratch_;
  int thread_;
};

}  // namespace weft::kernels::cuda
