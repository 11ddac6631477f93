#pragma once

#include "core/memory/exec.h"

namespace weft::kernels {

// The decay of a head, or of each of its channels, from a projection of its token:
//   g [tokens, heads * width] f32 = -e^{a_log} * softplus(a + dt_bias)
// a [tokens, heads * width] f32 or bf16, rows may be strided; a_log f32 [heads]; dt_bias f32 [heads
// * width].
struct HeadDecay {
  ConstView a;
  ConstView a_log, dt_bias;
};
void head_decay_forward(Exec& exec, const HeadDecay& gate, View g);
// da = ... (f32 or bf16);  d_a_log [heads], d_dt_bias [heads * width] += ...
void head_decay_backward(Exec& exec, const HeadDecay& gate, ConstView dg, View da, View d_a_log,
                         View d_dt_bias);

}  // namespace weft::kernels
