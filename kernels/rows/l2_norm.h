#pragma once

#include "core/memory/exec.h"

namespace weft::kernels {

// Every head to unit length:  y = x * inv_norm,  inv_norm = 1 / sqrt(sum(x^2) + epsilon).
// x, y [tokens, heads * width] f32 or bf16, rows may be strided; inv_norm f32 [tokens, heads].
// y may be the same bytes as x.
struct L2Norm {
  int64_t heads = 1;
  float epsilon = 1e-6f;
};
void l2_norm_forward(Exec& exec, const L2Norm& norm, ConstView x, View y, View inv_norm);
// dx = inv_norm * (dy - y * (y . dy)), from the outputs alone; may be the same bytes as dy.
void l2_norm_backward(Exec& exec, const L2Norm& norm, ConstView dy, ConstView y, ConstView inv_norm,
                      View dx);

}  // namespace weft::kernels
