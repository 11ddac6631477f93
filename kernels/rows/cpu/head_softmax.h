#pragma once

#include "kernels/rows/head_softmax.h"

// The CPU's side of kernels/rows/head_softmax.h: arguments are checked.
namespace weft::kernels::cpu {

void head_softmax_forward(Exec& exec, int64_t heads, ConstView x, View y);
void head_softmax_backward(Exec& exec, int64_t heads, ConstView y, ConstView dy, View dx);

}  // namespace weft::kernels::cpu
