#pragma once

#include "core/memory/exec.h"

// The gate of forgetting attention, as a logarithm:  log_forget = log sigmoid(z).   All f32
// [tokens, heads].
namespace weft::kernels {

void forget_gate_forward(Exec& exec, ConstView z, View log_forget);
// dz = d_log_forget * sigmoid(-z); dz may be the same bytes as d_log_forget.
void forget_gate_backward(Exec& exec, ConstView z, ConstView d_log_forget, View dz);

}  // namespace weft::kernels
