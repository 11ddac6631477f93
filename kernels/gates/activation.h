#pragma once

#include "core/memory/exec.h"

// Pointwise functions and gated units. f32 or bf16 in and out, computed in f32.
namespace weft::kernels {

enum class Activation : uint8_t { kIdentity, kRelu, kSilu, kElu1, kSigmoid, kTanh };

// y [n, d] = f(x); y may be the same bytes as x.
void activation_forward(Exec& exec, Activation f, ConstView x, View y);
// dx [n, d] = dy * f'(x); dx may be the same bytes as dy.
void activation_backward(Exec& exec, Activation f, ConstView x, ConstView dy, View dx);

// h [n, f] = scale [n] * silu(gate) * up, with gate_up [n, 2f] = (gate | up). An empty scale is 1.
// The scale carries the router's weight of an expert's row, so that the down projection's output
// needs no further factor and need not be kept.
void swiglu_forward(Exec& exec, ConstView gate_up, ConstView scale, View h);

// Given dh [n, f], the gradient of h:  d_gate_up [n, 2f];  d_scale [n] = sum_j dh * silu(gate) *
// up; h [n, f] is computed again where wanted (not empty), because the gradient of the down
// projection needs it. d_scale may be empty when scale is. d_gate_up may be the same bytes as
// gate_up.
void swiglu_backward(Exec& exec, ConstView gate_up, ConstView scale, ConstView dh, View d_gate_up,
                     View d_scale, View h);

}  // namespace weft::kernels
