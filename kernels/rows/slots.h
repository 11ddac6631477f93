#pragma once

#include "core/memory/exec.h"

// What memories of slots need beside their scans (gated slot attention). f32 or bf16 unless said
// otherwise, rows may be strided.
namespace weft::kernels {

// How much of a token each slot takes, what it does not keep of its past:  w = 1 - e^g.   g f32
void slot_writes_forward(Exec& exec, ConstView g, View w);
// dg -= e^g dw    (f32)
void slot_writes_backward(Exec& exec, ConstView g, ConstView dw, View dg);

// p = softmax of each head's slots; s, p [tokens, heads * slots]. p may be s.
void slot_softmax_forward(Exec& exec, int64_t heads, ConstView s, View p);
// ds = p (dp - <p, dp>); ds may be dp.
void slot_softmax_backward(Exec& exec, int64_t heads, ConstView p, ConstView dp, View ds);

}  // namespace weft::kernels
