#pragma once

#include <utility>

#include "kernels/tile/cpu_storage.h"
#include "kernels/tile/view.h"

// Loads into operands: widening, and transposing for the uses that want it.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

// Lanes [j, j + kLanes) of a row of `columns` elements; beyond the end zeros are read, nothing
// written.
template <class T>
WEFT_INLINE VF load_lanes(const T* row, int64_t j, int64_t columns) {
  if (j + kLanes <= columns) return load(row + j);
  return j < columns ? load_part(row + j, columns - j) : VF{};
}
template <class T>
WEFT_INLINE void store_lanes(T* row, int64_t j, int64_t columns, VF x) {
  if (j + kLanes <= columns) {
    store(row + j, x);
  } else if (j < columns) {
    store_part(row + j, x, columns - j);
  }
}

template <int distance, size_t... lane>
WEFT_INLINE void exchange(VF& a, VF& b, std::index_sequence<lane...>) {
  const VF x = a, y = b;
  a = __builtin_shufflevector(x, y, ((lane & distance) ? kLanes + lane - distance : lane)...);
  b = __builtin_shufflevector(x, y, ((lane & distance) ? kLanes + lane : lane + distance)...);
}
template <int distance>
WEFT_INLINE void exchange_blocks(VF (&x)[kLanes]) {
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r) {
    if ((r & distance) == 0) {
      exchange<distance>(x[r], x[r + distance], std::make_index_sequence<kLanes>{});
    }
  }
  if constexpr (distance > 1) exchange_blocks<distance / 2>(x);
}
// The transpose of a kLanes x kLanes block: blocks of half the size change places, then theirs.
WEFT_INLINE void transpose(VF (&x)[kLanes]) { exchange_blocks<kLanes / 2>(x); }

// Rows of kLanes x kLanes numbers at (i, j), transposed, into the turned form of `op`.
template <class Op>
WEFT_INLINE void put_turned(Op& op, int64_t i, int64_t j, VF (&x)[kLanes]) {
  transpose(x);
  float* to = op.turned + j * op.turned_stride + i;
  const int64_t count = op.columns - j;
#pragma GCC unroll 16
  for (int64_t c = 0; c < kLanes; ++c) {
    if (c < count) put_floats(to + c * op.turned_stride, x[c]);
  }
}

// The turned form is made from blocks of kLanes x kLanes; `row(i, j)` gives a vector, 0 <= i <
// op.rows.
template <class Op, class Get>
WEFT_INLINE void fill_turned(Op& op, Get row) {
  for (int64_t i = 0; i < op.rows; i += kLanes) {
    const int64_t rows = op.rows - i;
    for (int64_t j = 0; j < op.columns; j += kLanes) {
      VF x[kLanes];
      if (rows >= kLanes) {
#pragma GCC unroll 16
        for (int64_t r = 0; r < kLanes; ++r) x[r] = row(i + r, j);
      } else {
        for (int64_t r = 0; r < kLanes; ++r) x[r] = r < rows ? row(i + r, j) : VF{};
      }
      put_turned(op, i, j, x);
    }
  }
}

// op.turned = op.plain^T, after a run has put into op.
template <class Op>
WEFT_INLINE void turn(Op& op) {
  if constexpr (Op::has_turned) {
    fill_turned(op, [&](int64_t i, int64_t j) { return get_floats(op.plain + i * op.stride + j); });
  }
}

// op(i, j) = f(i, j, view(i, j)), in the forms that `op` is used in.
template <class Op, class T, class F>
WEFT_INLINE void load_operand(Op& op, const T* data, const tile::In& view, F f) {
  const auto row = [&](int64_t i, int64_t j) {
    if (i >= view.rows) return VF{};
    return f(Row{i}, Column{j}, load_lanes(data + i * view.stride, j, view.columns));
  };
  if constexpr (Op::has_plain) {
    for (int64_t i = 0; i < op.rows; ++i) {
      float* to = op.plain + i * op.stride;
      for (int64_t j = 0; j < op.columns; j += kLanes) put_floats(to + j, row(i, j));
    }
    turn(op);
  } else {
    fill_turned(op, row);
  }
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
