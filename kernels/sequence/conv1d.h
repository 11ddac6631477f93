#pragma once

#include <span>

#include "core/memory/exec.h"
#include "kernels/gates/activation.h"

namespace weft::kernels {

// Depthwise causal convolution along time:  y_t = act(sum_j w[:, j] x_{t - taps + 1 + j} + bias),
// the last tap being the current token. Before each document's start lies its entering history, or
// zeros. x, y [tokens, channels]; weight [channels, taps] f32; bias [channels] f32 or empty;
// documents: offsets, n + 1 entries.
struct ShortConv {
  int64_t taps = 4;
  Activation activation = Activation::kSilu;  // kSilu or kIdentity
  std::span<const int32_t> documents;
};

// Histories are [documents, taps - 1, channels], older rows first, f32 or bf16, rows may be strided
// (all by the same step). Leaving: the last taps - 1 rows of a document with its entering history
// before it, for empty documents too. What is not given is zero, or not wanted.
struct ConvHistory {
  ConstView entering = {};
  View leaving = {};  // overwritten; may be the same bytes as `entering`
};
struct ConvHistoryGradients {
  ConstView entering = {};   // as in forward, before it was overwritten
  ConstView d_leaving = {};  // goes to the rows that left: the last of dx, or of d_entering
  View d_entering = {};      // overwritten; may be the same bytes as d_leaving
};

void short_conv_forward(Exec& exec, const ShortConv& conv, ConstView x, ConstView weight,
                        ConstView bias, View y, const ConvHistory& history = {});
// dx = ..., d_weight += ..., d_bias += ... (empty when there is no bias)
void short_conv_backward(Exec& exec, const ShortConv& conv, ConstView x, ConstView weight,
                         ConstView bias, ConstView dy, View dx, View d_weight, View d_bias,
                         const ConvHistoryGradients& history = {});

}  // namespace weft::kernels
