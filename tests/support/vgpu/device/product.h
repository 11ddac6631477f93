#pragma once

#include "tests/support/vgpu/check/checker.h"
#include "tests/support/vgpu/cublaslt/product.h"

namespace vgpu {

// Plain loops in double.
void multiply(Checker& checker, const ProductBody& product);

}  // namespace vgpu
