#pragma once

#include "core/memory/exec.h"

// Pointwise functions. f32 or bf16 in and out, computed in f32.
namespace weft::kernels {

enum class Activation : uint8_t { kIdentity, kRelu, kSilu, kElu1, kSigmoid, kTanh };

// y [n, d] = f(x); y may be the same bytes as x.
void activation_forward(Exec& exec, Activation f, ConstView x, View y);
// dx [n, d] = dy * f'(x); dx may be the same bytes as dy.
void activation_backward(Exec& exec, Activation f, ConstView x, ConstView dy, View dx);

}  // namespace weft::kernels
