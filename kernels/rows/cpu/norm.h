#pragma once

#include "kernels/rows/norm.h"

// The CPU's side of kernels/rows/norm.h: arguments are checked.
namespace weft::kernels::cpu {

void rms_norm_forward(Exec& exec, ConstView x, ConstView weight, float epsilon, View y,
                      View inv_rms);
void rms_norm_backward(Exec& exec, ConstView dy, ConstView x, ConstView weight, ConstView inv_rms,
                       ConstView residual, View dx, View d_weight);
void head_norm_forward(Exec& exec, const HeadNorm& norm, ConstView x, ConstView gate,
                       ConstView weight, View y, View inv_rms);
void head_norm_backward(Exec& exec, const HeadNorm& norm, ConstView dy, ConstView x, ConstView gate,
                        ConstView weight, ConstView inv_rms, View dx, View d_gate, View d_weight);

}  // namespace weft::kernels::cpu
