#pragma once

#include "kernels/attention/attention.h"

// The CPU's side of kernels/attention/attention.h: arguments are checked.
namespace weft::kernels::cpu {

void attention_forward(Exec& exec, const Attention& in, View out, View log_sum_exp,
                       std::span<BlockCount> report);
void attention_backward(Exec& exec, const Attention& in, ConstView out, ConstView log_sum_exp,
                        ConstView d_out, const AttentionGradients& gradients);

}  // namespace weft::kernels::cpu
