#pragma once

#include "kernels/cpu/isa/loops.h"

// Elements i .. of row r, whatever their type: for bodies so long that looking at it costs nothing.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

template <class N>
WEFT_INLINE VF load_any(const ConstRows& x, int64_t r, int64_t i, N n) {
  return x.dtype == DType::kBF16 ? load(row<bf16>(x, r) + i, n) : load(row<float>(x, r) + i, n);
}
template <class N>
WEFT_INLINE void store_any(const Rows& x, int64_t r, int64_t i, VF v, N n) {
  if (x.dtype == DType::kBF16) {
    store(row<bf16>(x, r) + i, v, n);
  } else {
    store(row<float>(x, r) + i, v, n);
  }
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
