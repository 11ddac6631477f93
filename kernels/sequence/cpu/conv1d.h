#pragma once

#include "kernels/sequence/conv1d.h"

// The CPU's side of kernels/sequence/conv1d.h: arguments are checked.
namespace weft::kernels::cpu {

void short_conv_forward(Exec& exec, const ShortConv& conv, ConstView x, ConstView weight,
                        ConstView bias, View y, const ConvHistory& history);
void short_conv_backward(Exec& exec, const ShortConv& conv, ConstView x, ConstView weight,
                         ConstView bias, ConstView dy, View dx, View d_weight, View d_bias,
                         const ConvHistoryGradients& history);

}  // namespace weft::kernels::cpu
