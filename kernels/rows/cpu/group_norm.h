#pragma once

#include "kernels/rows/group_norm.h"

// The CPU's side of kernels/rows/group_norm.h: arguments are checked.
namespace weft::kernels::cpu {

void group_norm_forward(Exec& exec, const GroupNorm& norm, ConstView x, ConstView weight,
                        ConstView bias, View y, const GroupNormStatistics& statistics);
void group_norm_backward(Exec& exec, const GroupNorm& norm, ConstView dy, ConstView x,
                         ConstView weight, const GroupNormStatistics& statistics,
                         const GroupNormGradients& gradients);

}  // namespace weft::kernels::cpu
