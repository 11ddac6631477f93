#pragma once

#include "kernels/gates/forget_gate.h"

// The CPU's side of kernels/gates/forget_gate.h: arguments are checked.
namespace weft::kernels::cpu {

void forget_gate_forward(Exec& exec, ConstView z, View log_forget);
void forget_gate_backward(Exec& exec, ConstView z, ConstView d_log_forget, View dz);

}  // namespace weft::kernels::cpu
