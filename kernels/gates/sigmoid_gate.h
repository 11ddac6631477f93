#pragma once

#include "core/memory/exec.h"

namespace weft::kernels {

// y = x * sigmoid(gate), all [n, d] of one type; rows may be strided. (With a norm before it:
// head_norm in kernels/rows/norm.h.)
void sigmoid_gate_forward(Exec& exec, ConstView x, ConstView gate, View y);
// dx = dy * sigmoid(gate), d_gate = dy * x * sigmoid'(gate); dx may be dy.
void sigmoid_gate_backward(Exec& exec, ConstView x, ConstView gate, ConstView dy, View dx,
                           View d_gate);

}  // namespace weft::kernels
