#pragma once

#include "kernels/gates/output_gate.h"

// The CPU's side of kernels/gates/output_gate.h: arguments are checked.
namespace weft::kernels::cpu {

void output_gate_forward(Exec& exec, GateActivation act, ConstView x, ConstView gate, View y);
void output_gate_backward(Exec& exec, GateActivation act, ConstView x, ConstView gate, ConstView dy,
                          View dx, View d_gate);

}  // namespace weft::kernels::cpu
