#pragma once

#include "core/memory/exec.h"

namespace weft::kernels {

// Softmax over the channels of each head:  y = e^x / sum(e^x).
// x, y [tokens, heads * width] f32 or bf16, each on its own; rows may be strided; y may be x.
void head_softmax_forward(Exec& exec, int64_t heads, ConstView x, View y);
// dx = y * (dy - <y, dy>), from the outputs alone; may be the same bytes as dy.
void head_softmax_backward(Exec& exec, int64_t heads, ConstView y, ConstView dy, View dx);

}  // namespace weft::kernels
