#pragma once

#include <span>

#include "core/exec.h"

// Causal softmax attention by blocks, never forming a tokens x tokens matrix:
//   o_i = sum_j softmax_j(scale q_i . k_j) v_j  over j <= i in the same document, i - j < window
namespace weft::kernels {

// q [tokens, heads * key], k [tokens, kv_heads * key], v [tokens, kv_heads * value], all f32 or all
// bf16, rows may be strided. Query head h reads kv head h / (heads / kv_heads). documents: offsets,
// n + 1 entries.
struct Attention {
  ConstView q, k, v;
  std::span<const int32_t> documents;
  int64_t heads = 1, kv_heads = 1;
  int64_t key = 0, value = 0;
  float scale = 1.0f;
  int64_t window = 0;  // keys a token sees, itself included; 0: all
};

// out [tokens, heads * value], type of v or f32;  log_sum_exp [tokens, heads] f32, for backward.
void attention_forward(Exec& exec, const Attention& in, View out, View log_sum_exp);

struct AttentionGradients {
  View dq, dk, dv;  // type of the inputs or f32; overwritten
};
void attention_backward(Exec& exec, const Attention& in, ConstView out, ConstView log_sum_exp,
                        ConstView d_out, const AttentionGradients& gradients);

}  // namespace weft::kernels
