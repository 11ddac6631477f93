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

// op(i, j) = f(i, j, view(i, j)), in the forms that `op` is used in.
template <class Op, class T, class F>
WEFT_INLINE void load_operand(Op& op, const T* data, const tile::In& view, F f) {
  for (int64_t i = 0; i < op.rows; i += kLanes) {
    for (int64_t j = 0; j < op.columns; j += kLanes) {
      VF x[kLanes];
#pragma GCC unroll 16
      for (int64_t r = 0; r < kLanes; ++r) {
        x[r] = VF{};
        if (i + r < view.rows) {
          x[r] =
              f(Row{i + r}, Column{j}, load_lanes(data + (i + r) * view.stride, j, view.columns));
        }
        if (Op::has_plain && i + r < op.rows) store(op.plain + (i + r) * op.stride + j, x[r]);
      }
      if constexpr (Op::has_turned) {
        transpose(x);
#pragma GCC unroll 16
        for (int64_t c = 0; c < kLanes; ++c) {
          if (j + c < op.columns) store(op.turned + (j + c) * op.turned_stride + i, x[c]);
        }
      }
    }
  }
}

// op.turned = op.plain^T, after a run has put into op.
template <class Op>
WEFT_INLINE void turn(Op& op) {
  if constexpr (Op::has_turned) {
    for (int64_t i = 0; i < op.rows; i += kLanes) {
      for (int64_t j = 0; j < op.columns; j += kLanes) {
        VF x[kLanes];
#pragma GCC unroll 16
        for (int64_t r = 0; r < kLanes; ++r) {
          x[r] = i + r < op.rows ? load(op.plain + (i + r) * op.stride + j) : VF{};
        }
        transpose(x);
#pragma GCC unroll 16
        for (int64_t c = 0; c < kLanes; ++c) {
          if (j + c < op.columns) store(op.turned + (j + c) * op.turned_stride + i, x[c]);
        }
      }
    }
  }
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
