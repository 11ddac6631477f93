#pragma once

#include <cstdint>

// The vocabulary of tile programs: what may be said to an engine. Nothing here computes; an engine
// (tile/cpu.h, tile/cuda.cuh) gives the words their meaning. See tile/README.md.
#ifdef __CUDACC__
#define WEFT_TILE __device__ __forceinline__
#define WEFT_TILE_CONSTANT __device__ constexpr
#else
#define WEFT_TILE [[gnu::always_inline]] inline
#define WEFT_TILE_CONSTANT inline constexpr
#endif

namespace weft::kernels::tile {

// How an operand will be used: in products, as it is or transposed, on the left or on the right. An
// engine prepares exactly these forms when the operand is loaded or put, and may round what
// products read. kEntries: maps, `take` and all words but products see the numbers in f32 as they
// were put; without it they see what products do.
enum Use : unsigned { kA = 1, kAt = 2, kB = 4, kBt = 8, kEntries = 16 };

// The entries of a matrix that can differ from zero: low <= column - row <= high.
struct Band {
  int64_t low, high;
};
inline constexpr int64_t kFar = int64_t{1} << 40;
WEFT_TILE_CONSTANT Band kFull{-kFar, kFar};
WEFT_TILE_CONSTANT Band kLower{-kFar, 0};   // row >= column
WEFT_TILE_CONSTANT Band kBelow{-kFar, -1};  // row > column

enum class Form : uint8_t { kNn, kNt, kTn };    // a b,  a b^T,  a^T b
enum class Banded : uint8_t { kNone, kA, kB };  // which stored operand has zeros outside `band`

template <Form form_, class A, class B>
struct Product {
  static constexpr Form form = form_;
  const A& a;
  const B& b;
  Banded banded;
  Band band;
};
template <class A, class B>
WEFT_TILE Product<Form::kNn, A, B> nn(const A& a, const B& b, Banded banded = Banded::kNone,
                                      Band band = kFull) {
  return {a, b, banded, band};
}
template <class A, class B>
WEFT_TILE Product<Form::kNt, A, B> nt(const A& a, const B& b, Banded banded = Banded::kNone,
                                      Band band = kFull) {
  return {a, b, banded, band};
}
template <class A, class B>
WEFT_TILE Product<Form::kTn, A, B> tn(const A& a, const B& b, Banded banded = Banded::kNone,
                                      Band band = kFull) {
  return {a, b, banded, band};
}

struct Same {
  template <class I, class J, class X>
  WEFT_TILE X operator()(I, J, X x) const {
    return x;
  }
};

// acc = source(i, j); the source is an operand or a view. Only as the first step.
template <class Source>
struct Take {
  const Source& source;
};
template <class Source>
WEFT_TILE Take<Source> take(const Source& source) {
  return {source};
}

// acc = f(i, j, acc)
template <class F>
struct Map {
  F f;
};
template <class F>
WEFT_TILE Map<F> map(F f) {
  return {f};
}

// operand(i, j) = f(i, j, acc), zero outside the band of the run.
template <class Op, class F>
struct Put {
  Op& op;
  F f;
};
template <class Op, class F = Same>
WEFT_TILE Put<Op, F> put(Op& op, F f = {}) {
  return {op, f};
}

// view(i, j) = f(i, j, acc), and view(j, i) = f(i, j, acc)
template <class View, class F>
struct Store {
  const View& view;
  F f;
};
template <class View, class F = Same>
WEFT_TILE Store<View, F> store(const View& view, F f = {}) {
  return {view, f};
}
template <class View, class F>
struct StoreTurned {
  const View& view;
  F f;
};
template <class View, class F = Same>
WEFT_TILE StoreTurned<View, F> store_turned(const View& view, F f = {}) {
  return {view, f};
}

// vec[i] += sum over j of f;  vec[j] += sum over i of f;  vec[j] = max(vec[j], max over i of f)
template <class Vec, class F>
struct RowSum {
  Vec& vec;
  F f;
};
template <class Vec, class F = Same>
WEFT_TILE RowSum<Vec, F> row_sum(Vec& vec, F f = {}) {
  return {vec, f};
}
template <class Vec, class F>
struct ColumnSum {
  Vec& vec;
  F f;
};
template <class Vec, class F = Same>
WEFT_TILE ColumnSum<Vec, F> column_sum(Vec& vec, F f = {}) {
  return {vec, f};
}
template <class Vec, class F>
struct ColumnMax {
  Vec& vec;
  F f;
};
template <class Vec, class F = Same>
WEFT_TILE ColumnMax<Vec, F> column_max(Vec& vec, F f = {}) {
  return {vec, f};
}

}  // namespace weft::kernels::tile
