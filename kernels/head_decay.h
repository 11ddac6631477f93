#pragma once

#include "core/exec.h"

namespace weft::kernels {

// The decay of a head from a projection of its token:
//   g [tokens, heads] f32 = -e^{a_log} * softplus(a + dt_bias)
// a [tokens, heads] f32 or bf16, rows may be strided; a_log, dt_bias f32 [heads].
struct HeadDecay {
  ConstView a;
  ConstView a_log, dt_bias;
};
void head_decay_forward(Exec& exec, const HeadDecay& gate, View g);
// da = ... (f32 or bf16);  d_a_log, d_dt_bias [heads] += ...
void head_decay_backward(Exec& exec, const HeadDecay& gate, ConstView dg, View da, View d_a_log,
                         View d_dt_bias);

}  // namespace weft::kernels
