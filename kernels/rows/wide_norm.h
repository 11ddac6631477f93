#pragma once

#include "core/memory/exec.h"

// RMSNorm in steps, for rows whose channels several ranks hold: what is summed over a row's
// channels is summed over the ranks in between. All f32; rows are `groups` runs of equal width,
// each with its own statistics [n, groups]; weight [d].
namespace weft::kernels {

// squares = sum of x^2
void wide_norm_squares(Exec& exec, ConstView x, int64_t groups, View squares);
// inv_rms = 1 / sqrt(squares / width + epsilon), of groups of `width` channels; may be the same
// bytes as squares
void wide_norm_inverse(Exec& exec, ConstView squares, int64_t width, float epsilon, View inv_rms);
// y = x * inv_rms * weight
void wide_norm_scale(Exec& exec, ConstView x, ConstView inv_rms, ConstView weight, View y);
// d_weight += sum over rows of dy * x * inv_rms;  products = sum of dy * weight * x * inv_rms
void wide_norm_products(Exec& exec, ConstView dy, ConstView x, ConstView inv_rms, ConstView weight,
                        View d_weight, View products);
// dx = (dy * weight - x * inv_rms * mean) * inv_rms;  mean: of dy * weight * x * inv_rms
struct WideNormBackward {
  ConstView dy, x, inv_rms, weight, mean;
  View dx;
};
void wide_norm_backward(Exec& exec, const WideNormBackward& call);

}  // namespace weft::kernels
