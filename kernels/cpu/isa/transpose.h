#pragma once

#include <utility>

#include "kernels/cpu/isa/simd.h"

// The transpose of a square of vectors: blocks of half its size change places, then theirs.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

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
WEFT_INLINE void transpose(VF (&x)[kLanes]) { exchange_blocks<kLanes / 2>(x); }

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
