#pragma once

#include "kernels/sequence/token_lerp.h"

// The CPU's side of kernels/sequence/token_lerp.h: arguments are checked.
namespace weft::kernels::cpu {

void token_lerp_forward(Exec& exec, const TokenLerp& in, View y);
void token_lerp_backward(Exec& exec, const TokenLerp& in, ConstView dy,
                         const TokenLerpGradients& gradients);

}  // namespace weft::kernels::cpu
