#pragma once

#include <span>

#include "core/exec.h"

namespace weft::kernels {

// Each head mixes a token with the one before it:
//   y_t = a_t x_{t-1} + (1 - a_t) x_t,   a_t = sigmoid(logit_t),   x = 0 before each document's
//   start
// x, y [tokens, heads * width] of one type; logits [tokens, heads] f32; rows may be strided.
// documents: offsets, n + 1 entries.
struct TokenShift {
  int64_t heads = 1;
  std::span<const int32_t> documents;
};
void token_shift_forward(Exec& exec, const TokenShift& shift, ConstView x, ConstView logits,
                         View y);
// dx = ..., d_logits = ...; dx must not be dy, of which a row is read twice.
void token_shift_backward(Exec& exec, const TokenShift& shift, ConstView x, ConstView logits,
                          ConstView dy, View dx, View d_logits);

}  // namespace weft::kernels
