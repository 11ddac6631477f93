#pragma once

#include "core/memory/exec.h"
#include "kernels/rows/gate_activation.h"

// Row-wise normalization. Contract of every kernel in this folder: outputs are allocated by the
// caller; activation outputs are overwritten (=), parameter gradients are accumulated (+=); sums
// are carried in f32; no communication. x and y may be f32 or bf16, each on its own; weights and
// statistics are f32.
namespace weft::kernels {

// y [n, d] = x [n, d] * inv_rms [n] * weight [d];  inv_rms = 1 / sqrt(mean(x^2) + epsilon)
void rms_norm_forward(Exec& exec, ConstView x, ConstView weight, float epsilon, View y,
                      View inv_rms);

// dx [n, d] = gradient of x, plus `residual` [n, d] where given (the gradient that flows past the
// norm; may be the same bytes as dx);  d_weight [d] += sum over rows of dy * x * inv_rms
void rms_norm_backward(Exec& exec, ConstView dy, ConstView x, ConstView weight, ConstView inv_rms,
                       ConstView residual, View dx, View d_weight);

// RMSNorm of each head, then an optional gate:  y = rms_norm(x; weight) * act(gate).
// x, gate, y: [tokens, heads * width], rows may be strided; inv_rms: [tokens, heads];
// weight: [width], shared by the heads, or [heads * width]. An empty gate means no gate; kNone with
// a gate is not allowed.
struct HeadNorm {
  int64_t heads = 1;
  float epsilon = 1e-5f;
  GateActivation gate = GateActivation::kNone;
};
void head_norm_forward(Exec& exec, const HeadNorm& norm, ConstView x, ConstView gate,
                       ConstView weight, View y, View inv_rms);
void head_norm_backward(Exec& exec, const HeadNorm& norm, ConstView dy, ConstView x, ConstView gate,
                        ConstView weight, ConstView inv_rms, View dx, View d_gate, View d_weight);

}  // namespace weft::kernels
