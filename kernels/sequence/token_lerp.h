#pragma once

#include "core/memory/exec.h"

// A token mixed with another, channel by channel (RWKV):
//   y = x + mix * (before - x)
// All matrices are [n, d], f32 or bf16 unless said otherwise, rows may be strided. The mix is f32
// [d], the same for every token, or [n, d].
namespace weft::kernels {

struct TokenLerp {
  ConstView x, before, mix;
};
void token_lerp_forward(Exec& exec, const TokenLerp& in, View y);

// Added to: dx, d_before (f32), and d_mix f32 [d] of a mix that is the same for every token.
// Overwritten: d_mix [n, d].
struct TokenLerpGradients {
  View dx, d_before, d_mix;
};
void token_lerp_backward(Exec& exec, const TokenLerp& in, ConstView dy,
                         const TokenLerpGradients& gradients);

}  // namespace weft::kernels
