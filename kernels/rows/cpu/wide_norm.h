#pragma once

#include "kernels/rows/wide_norm.h"

// The CPU's side of kernels/rows/wide_norm.h: arguments are checked.
namespace weft::kernels::cpu {

void wide_norm_squares(Exec& exec, ConstView x, int64_t groups, View squares);
void wide_norm_inverse(Exec& exec, ConstView squares, int64_t width, float epsilon, View inv_rms);
void wide_norm_scale(Exec& exec, ConstView x, ConstView inv_rms, ConstView weight, View y);
void wide_norm_products(Exec& exec, ConstView dy, ConstView x, ConstView inv_rms, ConstView weight,
                        View d_weight, View products);
void wide_norm_backward(Exec& exec, const WideNormBackward& call);

}  // namespace weft::kernels::cpu
