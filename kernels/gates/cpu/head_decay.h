#pragma once

#include "kernels/gates/head_decay.h"

// The CPU's side of kernels/gates/head_decay.h: arguments are checked.
namespace weft::kernels::cpu {

void head_decay_forward(Exec& exec, const HeadDecay& gate, View g);
void head_decay_backward(Exec& exec, const HeadDecay& gate, ConstView dg, View da, View d_a_log,
                         View d_dt_bias);

}  // namespace weft::kernels::cpu
