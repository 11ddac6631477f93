#pragma once

#include "core/memory/exec.h"

// The function between the two matrices of a feed-forward layer. f32 or bf16 in and out, computed
// in f32.
//
//   h [n, f] = scale [n] * a(pre)           pre [n, pre_width]
//   swiglu  silu(gate) * up                 pre = (gate | up), 2f wide
//   gelu    x Phi(x), Phi the normal distribution (by erf, not the tanh approximation)
//   relu2   max(x, 0)^2
//
// An empty scale is 1. The scale carries the router's weight of an expert's row, so that the down
// projection's output needs no further factor and need not be kept.
namespace weft::kernels {

enum class FfnActivation : uint8_t { kSwiglu, kGelu, kRelu2 };

constexpr bool gated(FfnActivation a) { return a == FfnActivation::kSwiglu; }
constexpr int64_t pre_width(FfnActivation a, int64_t width) { return gated(a) ? 2 * width : width; }

void ffn_activation_forward(Exec& exec, FfnActivation a, ConstView pre, ConstView scale, View h);

// d_pre [n, pre_width] from dh [n, f], the gradient of h; it may be the same bytes as pre.
// d_scale [n] = sum_j dh * a(pre); may be empty when scale is.
// h [n, f] is computed again where wanted (not empty): the gradient of the down projection needs
// it.
struct FfnActivationBackward {
  ConstView pre, scale, dh;
  View d_pre, d_scale, h;
};
void ffn_activation_backward(Exec& exec, FfnActivation a, const FfnActivationBackward& args);

}  // namespace weft::kernels
