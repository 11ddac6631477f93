#pragma once

#include <span>

#include "core/memory/exec.h"

namespace weft::kernels {

// Each head mixes a token with the one before it:
//   y_t = a_t x_{t-1} + (1 - a_t) x_t,   a_t = sigmoid(logit_t)
// Before each document's start lies its entering history, or zeros. x, y [tokens, heads * width] of
// one type; logits [tokens, heads] f32; rows may be strided. documents: offsets, n + 1 entries.
struct TokenShift {
  int64_t heads = 1;
  std::span<const int32_t> documents;
};

// Histories are [documents, 1, heads * width], f32 or bf16. Leaving: the last row of a document, or
// the entering one of an empty document. What is not given is zero, or not wanted.
struct ShiftHistory {
  ConstView entering = {};
  View leaving = {};  // overwritten; may be the same bytes as `entering`
};
struct ShiftHistoryGradients {
  ConstView entering = {};   // as in forward, before it was overwritten
  ConstView d_leaving = {};  // goes to the last row of dx, or to d_entering of an empty document
  View d_entering = {};      // overwritten; may be the same bytes as d_leaving
};

void token_shift_forward(Exec& exec, const TokenShift& shift, ConstView x, ConstView logits, View y,
                         const ShiftHistory& history = {});
// dx = ..., d_logits = ...; dx must not be dy, of which a row is read twice.
void token_shift_backward(Exec& exec, const TokenShift& shift, ConstView x, ConstView logits,
                          ConstView dy, View dx, View d_logits,
                          const ShiftHistoryGradients& history = {});

}  // namespace weft::kernels
