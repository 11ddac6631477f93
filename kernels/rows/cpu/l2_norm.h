#pragma once

#include "kernels/rows/l2_norm.h"

// The CPU's side of kernels/rows/l2_norm.h: arguments are checked.
namespace weft::kernels::cpu {

void l2_norm_forward(Exec& exec, const L2Norm& norm, ConstView x, View y, View inv_norm);
void l2_norm_backward(Exec& exec, const L2Norm& norm, ConstView dy, ConstView y, ConstView inv_norm,
                      View dx);

}  // namespace weft::kernels::cpu
