#pragma once

#include "kernels/gates/activation.h"

// The CPU's side of kernels/gates/activation.h: arguments are checked.
namespace weft::kernels::cpu {

void activation_forward(Exec& exec, Activation f, ConstView x, View y);
void activation_backward(Exec& exec, Activation f, ConstView x, ConstView dy, View dx);

}  // namespace weft::kernels::cpu
