#pragma once

#include <span>

#include "core/exec.h"
#include "kernels/activation.h"

namespace weft::kernels {

// Depthwise causal convolution along time:  y_t = act(sum_j w[:, j] x_{t - taps + 1 + j} + bias),
// the last tap being the current token, zeros before each document's start. x, y [tokens,
// channels]; weight [channels, taps] f32; bias [channels] f32 or empty; documents: offsets, n + 1
// entries.
struct ShortConv {
  int64_t taps = 4;
  Activation activation = Activation::kSilu;  // kSilu or kIdentity
  std::span<const int32_t> documents;
};
void short_conv_forward(Exec& exec, const ShortConv& conv, ConstView x, ConstView weight,
                        ConstView bias, View y);
// dx = ..., d_weight += ..., d_bias += ... (empty when there is no bias)
void short_conv_backward(Exec& exec, const ShortConv& conv, ConstView x, ConstView weight,
                         ConstView bias, ConstView dy, View dx, View d_weight, View d_bias);

}  // namespace weft::kernels
