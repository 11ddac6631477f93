#pragma once

#include <cstdint>

namespace vgpu {

enum class NumberType : uint32_t { kF64, kF32, kF16, kBf16, kE4m3, kE5m2 };

// Op::kProduct. D = epilogue(alpha op(A) op(B) + beta C), one matrix after the other in a batch.
// Entry (i, j) lies at `row * i + column * j` elements from the start.
struct ProductMatrix {
  uint64_t data;
  NumberType type;
  int64_t row, column, batch;
};

struct ProductBody {
  ProductMatrix a, b, c, d;  // a, b: as they enter the product, transposed or not
  int64_t m, n, k, batches;
  double alpha, beta;                           // unless they lie on the device, as f32:
  uint64_t alpha_at, beta_at;                   // 0: above
  uint64_t a_scale, b_scale, c_scale, d_scale;  // f32 on the device; 0: 1
  uint64_t amax_d;                              // f32 on the device; 0: not wanted
  uint64_t bias;                                // [m]; 0: none
  NumberType bias_type;
  enum class Curve : uint32_t { kNone, kRelu, kGelu } curve;
  uint32_t round_to_tf32;               // entries of a and b
  uint64_t workspace, workspace_bytes;  // overwritten
};

}  // namespace vgpu
