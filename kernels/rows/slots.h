#pragma once

#include "core/memory/exec.h"

// Memories of slots (gated slot attention). f32 or bf16 unless said otherwise, rows may be strided.
namespace weft::kernels {

// How much of a token each slot takes, what it does not keep of its past:  w = 1 - e^g.   g f32
void slot_writes_forward(Exec& exec, ConstView g, View w);
// dg -= e^g dw    (f32)
void slot_writes_backward(Exec& exec, ConstView g, ConstView dw, View dg);

}  // namespace weft::kernels
