#pragma once

#include "kernels/tile/cpu_move.h"
#include "kernels/tile/cpu_product.h"

// The steps of a run that are not products. On a strip, neighbouring steps share one pass over it:
// a vector of the accumulator is read once, goes through all of them in a register, and is written
// back only if a product follows. A step takes part in a pass through a cursor, which goes down one
// column of vectors.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

struct Place {
  const Strip& strip;
  Column j;
};

// What a step does before the first strip, on strips outside the band, and after the last strip.
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
  Column j;
  WEFT_INLINE VF operator()(Row i, VF) { return lanes_of(source, i, j); }
  WEFT_INLINE void end() {}
};
template <class Source>
WEFT_INLINE TakeCursor<Source> cursor(const tile::Take<Source>& step, const Place& at) {
  return {step.source, at.j};
}

template <class F>
struct MapCursor {
  const F& f;
  Column j;
  WEFT_INLINE VF operator()(Row i, VF x) { return f(i, j, x); }
  WEFT_INLINE void end() {}
};
template <class F>
WEFT_INLINE MapCursor<F> cursor(const tile::Map<F>& step, const Place& at) {
  return {step.f, at.j};
}

template <class F>
struct PutCursor {
  const F& f;
  Column j;
  float* to;
  int64_t stride;
  WEFT_INLINE VF operator()(Row i, VF x) {
    put_floats(to, f(i, j, x));
    to += stride;
    return x;
  }
  WEFT_INLINE void end() {}
};
// The same in words of pairs. Strips begin at even rows; two rows make one row of words.
template <class Op, class F>
struct PutPairsCursor {
  const F& f;
  Column j;
  Op& op;
  VF even{};
  int64_t next = 0;  // the row to come
  WEFT_INLINE VF operator()(Row i, VF x) {
    const VF y = f(i, j, x);
    if (i.i % 2 == 0) {
      even = y;
    } else {
      put_rows(op, i.i - 1, j.j, even, y);
    }
    next = i.i + 1;
    return x;
  }
  WEFT_INLINE void end() {
    if (next % 2 != 0) put_rows(op, next - 1, j.j, even, VF{});
  }
};
template <class Op, class F>
WEFT_INLINE auto cursor(const tile::Put<Op, F>& step, const Place& at) {
  if constexpr (Op::exact) {
    return PutCursor<F>{step.f, at.j, step.op.plain + at.strip.i * step.op.stride + at.j.j,
                        step.op.stride};
  } else {
    return PutPairsCursor<Op, F>{step.f, at.j, step.op};
  }
}
template <class Op, class F>
WEFT_INLINE void skip(const tile::Put<Op, F>& step, const Strip& t) {
  for (int64_t c = 0; c < kStripColumns; c += kLanes) {
    for (int64_t r = 0; r < t.rows; r += 2) put_rows(step.op, t.i + r, t.j + c, VF{}, VF{});
  }
}
template <class Op, class F>
WEFT_INLINE void finish(const tile::Put<Op, F>& step) {
  turn(step.op);
}

template <class F>
struct StoreCursor {
  const F& f;
  Column j;
  tile::Out view;
  WEFT_INLINE VF operator()(Row i, VF x) {
    if (i.i >= view.rows) return x;
    if (view.dtype == DType::kF32) {
      store_lanes(static_cast<float*>(view.data) + i.i * view.stride, j.j, view.columns,
                  f(i, j, x));
    } else {
      store_lanes(static_cast<bf16*>(view.data) + i.i * view.stride, j.j, view.columns, f(i, j, x));
    }
    return x;
  }
  WEFT_INLINE void end() {}
};
template <class F>
WEFT_INLINE StoreCursor<F> cursor(const tile::Store<tile::Out, F>& step, const Place& at) {
  return {step.f, at.j, step.view};
}

template <class F>
struct StoreTurnedCursor {
  const F& f;
  Column j;
  tile::Out view;
  template <class T>
  WEFT_INLINE void scatter(T* data, int64_t column, VF x) {
    T lanes[kLanes];
    store(lanes, x);
    for (int64_t c = 0; c < kLanes && j.j + c < view.rows; ++c) {
      data[(j.j + c) * view.stride + column] = lanes[c];
    }
  }
  WEFT_INLINE VF operator()(Row i, VF x) {
    if (i.i >= view.columns) return x;
    if (view.dtype == DType::kF32) {
      scatter(static_cast<float*>(view.data), i.i, f(i, j, x));
    } else {
      scatter(static_cast<bf16*>(view.data), i.i, f(i, j, x));
    }
    return x;
  }
  WEFT_INLINE void end() {}
};
template <class F>
WEFT_INLINE StoreTurnedCursor<F> cursor(const tile::StoreTurned<tile::Out, F>& step,
                                        const Place& at) {
  return {step.f, at.j, step.view};
}

// Lanes are added up once per run, in `finish`; those beyond the last column count as zero.
template <class F>
struct RowSumCursor {
  const F& f;
  Column j;
  float* partial;
  int64_t lanes;  // that count
  WEFT_INLINE VF operator()(Row i, VF x) {
    VF y = f(i, j, x);
    if (lanes < kLanes) {
      float part[kLanes];
      store(part, y);
      y = load_part(part, lanes);
    }
    put_floats(partial, get_floats(partial) + y);
    partial += kLanes;
    return x;
  }
  WEFT_INLINE void end() {}
};
template <class Vec, class F>
WEFT_INLINE RowSumCursor<F> cursor(const tile::RowSum<Vec, F>& step, const Place& at) {
  const int64_t left = at.strip.j + at.strip.columns - at.j.j;
  return {step.f, at.j, step.vec.partial + at.strip.i * kLanes, left < 0 ? 0 : left};
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
  Column j;
  float* to;
  VF y;
  WEFT_INLINE VF operator()(Row i, VF x) {
    const VF z = f(i, j, x);
    y = is_max ? max(z, y) : y + z;
    return x;
  }
  WEFT_INLINE void end() { put_floats(to, y); }
};
template <class Vec, class F>
WEFT_INLINE ColumnCursor<F, false> cursor(const tile::ColumnSum<Vec, F>& step, const Place& at) {
  return {step.f, at.j, step.vec.data + at.j.j, get_floats(step.vec.data + at.j.j)};
}
template <class Vec, class F>
WEFT_INLINE ColumnCursor<F, true> cursor(const tile::ColumnMax<Vec, F>& step, const Place& at) {
  return {step.f, at.j, step.vec.data + at.j.j, get_floats(step.vec.data + at.j.j)};
}

// One column of vectors through all cursors.
template <bool reads, bool writes, class... Cursors>
WEFT_INLINE void pass_column(float* acc, int64_t first, int64_t rows, Cursors... cursors) {
  for (int64_t r = 0; r < rows; ++r, acc += kStripColumns) {
    VF x{};
    if constexpr (reads) x = get_floats(acc);
    ((x = cursors(Row{first + r}, x)), ...);
    if constexpr (writes) put_floats(acc, x);
  }
  (cursors.end(), ...);
}

template <bool reads, bool writes, class... Steps>
WEFT_INLINE void pass(Strip& t, const Steps&... steps) {
  for (int64_t c = 0; c < kStripColumns; c += kLanes) {
    const Place at{t, Column{t.j + c}};
    pass_column<reads, writes>(t.acc + c, t.i, t.rows, cursor(steps, at)...);
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
