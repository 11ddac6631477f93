#pragma once

#include "kernels/tile/cpu_move.h"
#include "kernels/tile/cpu_product.h"

// The steps of a run that are not products. On a strip, neighbouring steps share one pass over it:
// two vectors of a row of the accumulator are read once, go through all of them in registers, and
// are written back only if a product follows. A step takes part in a pass through a cursor, which
// goes down the rows of a strip.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

// Columns of a strip that a cursor goes down.
struct Place {
  const Strip& strip;
  Column first, second;
};

// f(i, j, x) for both halves of a row.
template <class F>
WEFT_INLINE Two both(const F& f, const Place& at, Row i, const Two& x) {
  return {f(i, at.first, x.first), f(i, at.second, x.second)};
}

// Work of a step before the first strip, on strips outside the band, and after the last strip.
template <class Step>
WEFT_INLINE void prepare(const Step&) {}
template <class Step>
WEFT_INLINE void skip(const Step&, const Strip&) {}
template <class Step>
WEFT_INLINE void finish(const Step&) {}

template <class Byte>
WEFT_INLINE VF lanes_of(const tile::MatrixView<Byte>& view, Row i, Column j) {
  const int64_t row = i.i * view.stride;
  if (view.dtype == DType::kF32) {
    return load_lanes(static_cast<const float*>(view.data) + row, j.j, view.columns);
  }
  return load_lanes(static_cast<const bf16*>(view.data) + row, j.j, view.columns);
}
template <class Op>
requires requires { Op::uses; }
WEFT_INLINE VF lanes_of(const Op& op, Row i, Column j) { return op(i, j); }

template <class Source>
struct TakeCursor {
  const Source& source;
  const Place& at;
  WEFT_INLINE Two operator()(Row i, const Two&) {
    return {lanes_of(source, i, at.first), lanes_of(source, i, at.second)};
  }
  WEFT_INLINE void end() {}
};
template <class Source>
WEFT_INLINE TakeCursor<Source> cursor(const tile::Take<Source>& step, const Place& at) {
  return {step.source, at};
}

template <class F>
struct MapCursor {
  const F& f;
  const Place& at;
  WEFT_INLINE Two operator()(Row i, const Two& x) { return both(f, at, i, x); }
  WEFT_INLINE void end() {}
};
template <class F>
WEFT_INLINE MapCursor<F> cursor(const tile::Map<F>& step, const Place& at) {
  return {step.f, at};
}

template <class F>
struct PutCursor {
  const F& f;
  const Place& at;
  float* to;
  int64_t stride;
  WEFT_INLINE Two operator()(Row i, const Two& x) {
    put_two(to, both(f, at, i, x));
    to += stride;
    return x;
  }
  WEFT_INLINE void end() {}
};
// Variant for words of pairs. Strips begin at even rows; two rows make one row of words.
template <class Op, class F>
struct PutPairsCursor {
  const F& f;
  const Place& at;
  Op& op;
  Two even{};
  int64_t next = 0;  // the row to come
  WEFT_INLINE void put(int64_t i, const Two& odd) { put_rows(op, i, at.first.j, even, odd); }
  WEFT_INLINE Two operator()(Row i, const Two& x) {
    const Two y = both(f, at, i, x);
    if (i.i % 2 == 0) {
      even = y;
    } else {
      put(i.i - 1, y);
    }
    next = i.i + 1;
    return x;
  }
  WEFT_INLINE void end() {
    if (next % 2 != 0) put(next - 1, {VF{}, VF{}});
  }
};
template <class Op, class F>
WEFT_INLINE auto cursor(const tile::Put<Op, F>& step, const Place& at) {
  if constexpr (Op::exact) {
    return PutCursor<F>{step.f, at, step.op.plain + at.strip.i * step.op.stride + at.first.j,
                        step.op.stride};
  } else {
    return PutPairsCursor<Op, F>{step.f, at, step.op};
  }
}
template <class Op, class F>
WEFT_INLINE void skip(const tile::Put<Op, F>& step, const Strip& t) {
  const Two zero{VF{}, VF{}};
  for (int64_t c = 0; c < kStripColumns; c += kVectorColumns) {
    for (int64_t r = 0; r < t.rows; r += 2) put_rows(step.op, t.i + r, t.j + c, zero, zero);
  }
}
template <class Op, class F>
WEFT_INLINE void finish(const tile::Put<Op, F>& step) {
  turn(step.op);
}

template <class F>
struct StoreCursor {
  const F& f;
  const Place& at;
  tile::Out view;
  bool whole, streamed;
  template <class T>
  WEFT_INLINE void put(T* row, const Two& y) {
    if (streamed) {
      stream_two(row + at.first.j, y);
    } else if (whole) {
      store_two(row + at.first.j, y);
    } else {
      store_lanes(row, at.first.j, view.columns, y.first);
      store_lanes(row, at.second.j, view.columns, y.second);
    }
  }
  WEFT_INLINE Two operator()(Row i, const Two& x) {
    if (i.i >= view.rows) return x;
    const Two y = both(f, at, i, x);
    if (view.dtype == DType::kF32) {
      put(static_cast<float*>(view.data) + i.i * view.stride, y);
    } else {
      put(static_cast<bf16*>(view.data) + i.i * view.stride, y);
    }
    return x;
  }
  WEFT_INLINE void end() {}
};
template <class F>
WEFT_INLINE StoreCursor<F> cursor(const tile::Store<tile::Out, F>& step, const Place& at) {
  const bool whole = at.first.j + kVectorColumns <= step.view.columns;
  return {step.f, at, step.view, whole, whole && step.view.streamed};
}

template <class F>
struct StoreTurnedCursor {
  const F& f;
  const Place& at;
  tile::Out view;
  template <class T>
  WEFT_INLINE void scatter(T* data, Column j, int64_t column, VF x) {
    T lanes[kLanes];
    store(lanes, x);
    for (int64_t c = 0; c < kLanes && j.j + c < view.rows; ++c) {
      data[(j.j + c) * view.stride + column] = lanes[c];
    }
  }
  template <class T>
  WEFT_INLINE void put(T* data, int64_t column, const Two& y) {
    scatter(data, at.first, column, y.first);
    scatter(data, at.second, column, y.second);
  }
  WEFT_INLINE Two operator()(Row i, const Two& x) {
    if (i.i >= view.columns) return x;
    const Two y = both(f, at, i, x);
    if (view.dtype == DType::kF32) {
      put(static_cast<float*>(view.data), i.i, y);
    } else {
      put(static_cast<bf16*>(view.data), i.i, y);
    }
    return x;
  }
  WEFT_INLINE void end() {}
};
template <class F>
WEFT_INLINE StoreTurnedCursor<F> cursor(const tile::StoreTurned<tile::Out, F>& step,
                                        const Place& at) {
  return {step.f, at, step.view};
}

// Lanes are added up once per run, in `finish`; those beyond the last column count as zero.
template <class F>
struct RowSumCursor {
  const F& f;
  const Place& at;
  float* partial;
  int64_t columns;  // from at.first on that count
  WEFT_INLINE static VF first_lanes(VF y, int64_t count) {
    if (count <= 0) return VF{};
    float part[kLanes];
    store(part, y);
    return load_part(part, count);
  }
  WEFT_INLINE Two operator()(Row i, const Two& x) {
    Two y = both(f, at, i, x);
    if (columns < kLanes) y.first = first_lanes(y.first, columns);
    if (columns < kVectorColumns) y.second = first_lanes(y.second, columns - kLanes);
    put_floats(partial, get_floats(partial) + (y.first + y.second));
    partial += kLanes;
    return x;
  }
  WEFT_INLINE void end() {}
};
template <class Vec, class F>
WEFT_INLINE RowSumCursor<F> cursor(const tile::RowSum<Vec, F>& step, const Place& at) {
  return {step.f, at, step.vec.partial + at.strip.i * kLanes,
          at.strip.j + at.strip.columns - at.first.j};
}
template <class Vec, class F>
WEFT_INLINE void prepare(const tile::RowSum<Vec, F>& step) {
  for (int64_t i = 0; i < step.vec.size; ++i) put_floats(step.vec.partial + i * kLanes, VF{});
}
template <class Vec, class F>
WEFT_INLINE void finish(const tile::RowSum<Vec, F>& step) {
  for (int64_t i = 0; i < step.vec.size; ++i) {
    step.vec.data[i] += sum(get_floats(step.vec.partial + i * kLanes));
  }
}

// Vectors are padded as columns are, so what padding collects stays in padding.
template <class F, bool is_max>
struct ColumnCursor {
  const F& f;
  const Place& at;
  float* to;
  Two y;
  WEFT_INLINE static VF join(VF z, VF y) { return is_max ? max(z, y) : y + z; }
  WEFT_INLINE Two operator()(Row i, const Two& x) {
    const Two z = both(f, at, i, x);
    y = {join(z.first, y.first), join(z.second, y.second)};
    return x;
  }
  WEFT_INLINE void end() { put_two(to, y); }
};
template <bool is_max, class Step>
WEFT_INLINE auto column_cursor(const Step& step, const Place& at) {
  float* to = step.vec.data + at.first.j;
  return ColumnCursor<decltype(step.f), is_max>{
      step.f, at, to, {get_floats(to), get_floats(to + kLanes)}};
}
template <class Vec, class F>
WEFT_INLINE auto cursor(const tile::ColumnSum<Vec, F>& step, const Place& at) {
  return column_cursor<false>(step, at);
}
template <class Vec, class F>
WEFT_INLINE auto cursor(const tile::ColumnMax<Vec, F>& step, const Place& at) {
  return column_cursor<true>(step, at);
}

// Two vectors of every row of a strip through all cursors.
template <bool reads, bool writes, class... Cursors>
WEFT_INLINE void pass_rows(float* acc, int64_t first, int64_t rows, Cursors... cursors) {
  for (int64_t r = 0; r < rows; ++r, acc += kStripColumns) {
    Two x{};
    if constexpr (reads) x = {get_floats(acc), get_floats(acc + kLanes)};
    ((x = cursors(Row{first + r}, x)), ...);
    if constexpr (writes) put_two(acc, x);
  }
  (cursors.end(), ...);
}

template <bool reads, bool writes, class... Steps>
WEFT_INLINE void pass(Strip& t, const Steps&... steps) {
  for (int64_t c = 0; c < kStripColumns; c += kVectorColumns) {
    const Place at{t, Column{t.j + c}, Column{t.j + c + kLanes}};
    pass_rows<reads, writes>(t.acc + c, t.i, t.rows, cursor(steps, at)...);
  }
  t.fresh = false;
}

template <class Step>
inline constexpr bool is_product = false;
template <tile::Form form, class A, class B>
inline constexpr bool is_product<tile::Product<form, A, B>> = true;

template <int n, class First, class... Rest>
WEFT_INLINE const auto& pick(const First& first, const Rest&... rest) {
  if constexpr (n == 0) {
    return first;
  } else {
    return pick<n - 1>(rest...);
  }
}

template <int from, class... Steps>
constexpr int end_of_pass() {
  constexpr bool product[] = {is_product<Steps>...};
  int to = from;
  while (to < static_cast<int>(sizeof...(Steps)) && !product[to]) ++to;
  return to;
}

// Steps `from` and later on one strip.
template <int from, class... Steps>
WEFT_INLINE void apply_from(Strip& t, const Steps&... steps) {
  constexpr int count = sizeof...(Steps), to = end_of_pass<from, Steps...>();
  if constexpr (from == count) {
    return;
  } else if constexpr (to == from) {
    apply(pick<from>(steps...), t);
    apply_from<from + 1>(t, steps...);
  } else {
    [&]<int... n>(std::integer_sequence<int, n...>) __attribute__((always_inline)) {
      pass<(from > 0), (to < count)>(t, pick<from + n>(steps...)...);
    }
    (std::make_integer_sequence<int, to - from>{});
    apply_from<to>(t, steps...);
  }
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
