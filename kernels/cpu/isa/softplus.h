#pragma once

#include "kernels/cpu/isa/simd.h"

namespace weft::kernels::WEFT_ISA_NAMESPACE {

// log(1 + e^x). Gates start at 1e-3 and less, where log(1 + u) alone has few digits left: the
// rounding of 1 + u is divided out again.
WEFT_INLINE VF softplus(VF x) {
  const VF u = exp(-abs(x)), one = 1.0f + u;
  const VF tail = select(one == 1.0f, u, log(one) * (u / (one - 1.0f)));
  return max(x, splat(0.0f)) + tail;
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
