#pragma once

#include "kernels/tile/cpu_move.h"
#include "kernels/tile/cpu_product.h"

// The steps of a run that are not products, on one strip. For every kind of step: `prepare` before
// the first strip, `apply` on a strip inside the band, `skip` on a strip outside it, `finish` after
// the last.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

// Calls f(row of the strip, row, column, x) for every vector of the strip.
template <class F>
WEFT_INLINE void for_each(Strip& t, F f) {
  for (int64_t r = 0; r < t.rows; ++r) {
#pragma GCC unroll 2
    for (int64_t c = 0; c < kStripColumns; c += kLanes) {
      float* x = t.at(r) + c;
      f(x, Row{t.i + r}, Column{t.j + c}, load(x));
    }
  }
}

template <class Step>
WEFT_INLINE void prepare(const Step&) {}
template <class Step>
WEFT_INLINE void skip(const Step&, Strip&) {}
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
WEFT_INLINE VF lanes_of(const Matrix& op, Row i, Column j) { return op(i, j); }

template <class Source>
WEFT_INLINE void apply(const tile::Take<Source>& step, Strip& t) {
  for_each(t, [&](float* x, Row i, Column j, VF) { store(x, lanes_of(step.source, i, j)); });
  t.fresh = false;
}

template <class F>
WEFT_INLINE void apply(const tile::Map<F>& step, Strip& t) {
  for_each(t, [&](float* x, Row i, Column j, VF v) { store(x, step.f(i, j, v)); });
}

template <class Op, class F>
WEFT_INLINE void apply(const tile::Put<Op, F>& step, Strip& t) {
  for_each(t, [&](float*, Row i, Column j, VF v) {
    store(step.op.plain + i.i * step.op.stride + j.j, step.f(i, j, v));
  });
}
template <class Op, class F>
WEFT_INLINE void skip(const tile::Put<Op, F>& step, Strip& t) {
  for_each(t, [&](float*, Row i, Column j, VF) {
    store(step.op.plain + i.i * step.op.stride + j.j, VF{});
  });
}
template <class Op, class F>
WEFT_INLINE void finish(const tile::Put<Op, F>& step) {
  turn(step.op);
}

template <class T, class F>
WEFT_INLINE void store_strip(T* data, const tile::Out& view, F f, Strip& t) {
  for_each(t, [&](float*, Row i, Column j, VF v) {
    if (i.i < view.rows) store_lanes(data + i.i * view.stride, j.j, view.columns, f(i, j, v));
  });
}
template <class F>
WEFT_INLINE void apply(const tile::Store<tile::Out, F>& step, Strip& t) {
  if (step.view.dtype == DType::kF32) {
    store_strip(static_cast<float*>(step.view.data), step.view, step.f, t);
  } else {
    store_strip(static_cast<bf16*>(step.view.data), step.view, step.f, t);
  }
}

template <class T, class F>
WEFT_INLINE void store_strip_turned(T* data, const tile::Out& view, F f, Strip& t) {
  for_each(t, [&](float*, Row i, Column j, VF v) {
    T lanes[kLanes];
    store(lanes, f(i, j, v));
    for (int64_t c = 0; c < kLanes && j.j + c < view.rows; ++c) {
      if (i.i < view.columns) data[(j.j + c) * view.stride + i.i] = lanes[c];
    }
  });
}
template <class F>
WEFT_INLINE void apply(const tile::StoreTurned<tile::Out, F>& step, Strip& t) {
  if (step.view.dtype == DType::kF32) {
    store_strip_turned(static_cast<float*>(step.view.data), step.view, step.f, t);
  } else {
    store_strip_turned(static_cast<bf16*>(step.view.data), step.view, step.f, t);
  }
}

// Lanes beyond the last column as zeros.
WEFT_INLINE VF without_padding(VF v, Column j, const Strip& t) {
  const int64_t left = t.j + t.columns - j.j;
  if (left >= kLanes) return v;
  float lanes[kLanes];
  store(lanes, v);
  return left > 0 ? load_part(lanes, left) : VF{};
}

template <class Vec, class F>
WEFT_INLINE void prepare(const tile::RowSum<Vec, F>& step) {
  for (int64_t i = 0; i < step.vec.size; ++i) store(step.vec.partial + i * kLanes, VF{});
}
template <class Vec, class F>
WEFT_INLINE void apply(const tile::RowSum<Vec, F>& step, Strip& t) {
  for_each(t, [&](float*, Row i, Column j, VF v) {
    float* sum = step.vec.partial + i.i * kLanes;
    store(sum, load(sum) + without_padding(step.f(i, j, v), j, t));
  });
}
template <class Vec, class F>
WEFT_INLINE void finish(const tile::RowSum<Vec, F>& step) {
  for (int64_t i = 0; i < step.vec.size; ++i) {
    step.vec.data[i] += sum(load(step.vec.partial + i * kLanes));
  }
}

// Columns are padded as vectors are, so what padding collects stays there.
template <class Vec, class F>
WEFT_INLINE void apply(const tile::ColumnSum<Vec, F>& step, Strip& t) {
  for_each(t, [&](float*, Row i, Column j, VF v) {
    store(step.vec.data + j.j, load(step.vec.data + j.j) + step.f(i, j, v));
  });
}
template <class Vec, class F>
WEFT_INLINE void apply(const tile::ColumnMax<Vec, F>& step, Strip& t) {
  for_each(t, [&](float*, Row i, Column j, VF v) {
    store(step.vec.data + j.j, max(load(step.vec.data + j.j), step.f(i, j, v)));
  });
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
