#pragma once

#include "core/memory/exec.h"

// LayerNorm of each head (GroupNorm over heads), per token:
//   y = (x - mean) * inv_deviation * weight + bias,   inv_deviation = 1 / sqrt(var + epsilon)
// x, y [tokens, heads * width], f32 or bf16 each on its own, rows may be strided; weight, bias f32
// [heads * width]; mean, inv_deviation f32 [tokens, heads].
namespace weft::kernels {

struct GroupNorm {
  int64_t heads = 1;
  float epsilon = 1e-5f;
};
struct GroupNormStatistics {
  Tensor mean, inv_deviation;
};
void group_norm_forward(Exec& exec, const GroupNorm& norm, ConstView x, ConstView weight,
                        ConstView bias, View y, const GroupNormStatistics& statistics);
// dx = ...;  d_weight, d_bias += ...   dx may be the same bytes as dy.
struct GroupNormGradients {
  View dx, d_weight, d_bias;
};
void group_norm_backward(Exec& exec, const GroupNorm& norm, ConstView dy, ConstView x,
                         ConstView weight, const GroupNormStatistics& statistics,
                         const GroupNormGradients& gradients);

}  // namespace weft::kernels
