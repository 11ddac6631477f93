#pragma once

#include "kernels/gates/ffn_activation.h"

// The CPU's side of kernels/gates/ffn_activation.h: arguments are checked.
namespace weft::kernels::cpu {

void ffn_activation_forward(Exec& exec, FfnActivation a, ConstView pre, ConstView scale, View h);
void ffn_activation_backward(Exec& exec, FfnActivation a, const FfnActivationBackward& args);

}  // namespace weft::kernels::cpu
