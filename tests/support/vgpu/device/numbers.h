#pragma once

#include <cstdint>

#include "tests/support/vgpu/cublaslt/product.h"

namespace vgpu {

uint64_t bytes_of(NumberType type);

// Number `index` of an array at an address of the device, exactly.
double load_number(NumberType type, uint64_t at, int64_t index);
// Rounded to nearest even; fp8 saturates, f16 becomes infinite.
void store_number(NumberType type, uint64_t at, int64_t index, double x);

// As tensor cores read f32: 10 bits behind the point, ties away from zero.
double rounded_to_tf32(double x);

}  // namespace vgpu
