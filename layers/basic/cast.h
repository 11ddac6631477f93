#pragma once

#include "kernels/rows/elementwise.h"

namespace weft {

// The tensor itself when it has that type, else a converted copy.
inline Tensor in_type(Exec& exec, const Tensor& x, DType type) {
  if (x.dtype() == type) return x;
  const Tensor y = exec.empty(x.shape(), type);
  kernels::copy(exec, x, y);
  return y;
}

}  // namespace weft
