#pragma once

#include "core/memory/exec.h"

// RWKV-7 around its recurrence (kernels/scan/rank_one_scan.h). Matrices are [tokens, heads
// * width], f32 or bf16, rows may be strided; vectors are f32 [heads * width].
namespace weft::kernels {

// A key is split into what it removes and what it writes, with a = sigmoid(gate):
//   kappa = k k_k, to unit length per head (a length below 1e-12 counts as that)
//   alpha = -kappa,   beta = kappa a,   key = k (1 + (a - 1) k_a)
struct Rwkv7Keys {
  int64_t heads = 1;
  ConstView k, gate;
  ConstView k_k, k_a;
};
void rwkv7_keys_forward(Exec& exec, const Rwkv7Keys& in, View alpha, View beta, View key);

// Overwritten: dk, d_gate. Added to: d_k_k, d_k_a.
struct Rwkv7KeysBackward {
  ConstView d_alpha, d_beta, d_key;
  View dk, d_gate;
  View d_k_k, d_k_a;
};
void rwkv7_keys_backward(Exec& exec, const Rwkv7Keys& in, const Rwkv7KeysBackward& gradients);

// The result of the recurrence, normalized per head, with the token's own value back in, gated:
//   y = (LayerNorm_head(o) weight + bias + (r . (k r_k)) v) gate
struct Rwkv7Output {
  int64_t heads = 1;
  float epsilon = 1e-5f;  // added to the variance
  ConstView o, r, k, v, gate;
  ConstView weight, bias, r_k;
};
void rwkv7_output_forward(Exec& exec, const Rwkv7Output& in, View y);

// Overwritten: d_o, dr, dk, dv, d_gate. Added to: d_weight, d_bias, d_r_k.
struct Rwkv7OutputBackward {
  ConstView dy;
  View d_o, dr, dk, dv, d_gate;
  View d_weight, d_bias, d_r_k;
};
void rwkv7_output_backward(Exec& exec, const Rwkv7Output& in, const Rwkv7OutputBackward& gradients);

}  // namespace weft::kernels
