#pragma once

#include "kernels/cpu/isa/simd.h"
#include "kernels/programs/diagonal_scan.h"

namespace weft::kernels::WEFT_ISA_NAMESPACE {

// Sizes of chunks that programs with decays per channel walk in blocks.
struct BlockedSizes {
  int64_t chunk_, key_, value_;
  WEFT_INLINE int64_t chunk() const { return chunk_; }
  WEFT_INLINE int64_t block() const { return programs::kDiagonalBlock; }
  WEFT_INLINE int64_t key() const { return key_; }
  WEFT_INLINE int64_t value() const { return value_; }
};

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
