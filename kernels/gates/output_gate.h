#pragma once

#include "core/memory/exec.h"
#include "kernels/rows/gate_activation.h"

// Gates without a norm before them (with one: head_norm in kernels/rows/norm.h). All matrices are
// [n, d], f32 or bf16, each on its own; rows may be strided. The activation is not kNone.
namespace weft::kernels {

// y = x * act(gate)
void output_gate_forward(Exec& exec, GateActivation act, ConstView x, ConstView gate, View y);
// dx = dy * act(gate), d_gate = dy * x * act'(gate); dx may be the same bytes as dy.
void output_gate_backward(Exec& exec, GateActivation act, ConstView x, ConstView gate, ConstView dy,
                          View dx, View d_gate);

}  // namespace weft::kernels
