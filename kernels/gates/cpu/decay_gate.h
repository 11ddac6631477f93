#pragma once

#include "kernels/gates/decay_gate.h"

// The CPU's side of kernels/gates/decay_gate.h: arguments are checked.
namespace weft::kernels::cpu {

void decay_gate_forward(Exec& exec, const DecayGate& gate, ConstView z, View g);
void decay_gate_backward(Exec& exec, const DecayGate& gate, ConstView z, ConstView dg, View dz);
void tied_gates_forward(Exec& exec, ConstView f, ConstView lower, View g, View k);
void tied_gates_backward(Exec& exec, const TiedGatesBackward& in);

}  // namespace weft::kernels::cpu
