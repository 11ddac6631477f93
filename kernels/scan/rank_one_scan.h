#pragma once

#include <span>

#include "kernels/scan/scan_fields.h"

// A state that a diagonal plus rank-one matrix carries on, in chunks (per head; vectors are rows):
//   M_t = diag(e^{g_t}) M_{t-1} + b_t^T (a_t M_{t-1}) + k_t^T v_t,    o_t = scale * q_t M_t
// (RWKV-7), and where a is absent the delta rule with a decay per key channel, b one number
// (KDA):
//   M_t = (I - b_t k_t^T k_t) diag(e^{g_t}) M_{t-1} + b_t k_t^T v_t
// No exponent is ever positive: decays may be as strong as they like.
namespace weft::kernels {

// q, k [tokens, heads * key], v [tokens, heads * value], all f32 or all bf16, rows may be strided.
// log_decay (g <= 0) f32 [tokens, heads * key]. alpha (a) and beta (b) [tokens, heads * key], type
// of q or f32; or alpha absent (data == nullptr) and beta f32 [tokens, heads]. documents:
// offsets, n + 1 entries; each starts from its own initial state. States are f32 [n, heads, key,
// value].
struct RankOneScan {
  static constexpr const char* kName = "rank_one_scan";
  using Gradients = struct RankOneScanGradients;
  static std::span<const ScanField<RankOneScan>> fields();

  ConstView q, k, v;
  ConstView log_decay;
  ConstView alpha, beta;
  std::span<const int32_t> documents;
  int64_t heads = 1;
  int64_t key = 0, value = 0;
  float scale = 1.0f;
};

// Floats that forward may leave for backward: its results for every chunk.
int64_t rank_one_scan_kept(Exec& exec, const RankOneScan& in);

// out [tokens, heads * value], type of v or f32. States may be absent: zero, not computed. kept:
// f32 of that many numbers; absent: backward recomputes them. Where out is
// absent, only the final state is computed: q is not read, nothing is kept.
void rank_one_scan_forward(Exec& exec, const RankOneScan& in, ConstView initial_state, View out,
                           View final_state, View kept = {});

// Overwritten: dq, dk, dv, d_alpha, d_beta (type of q or f32; d_alpha absent when alpha is,
// and d_beta then f32), d_log_decay f32, d_initial_state (may be absent).
struct RankOneScanGradients {
  View dq, dk, dv;
  View d_log_decay;
  View d_alpha, d_beta;
  View d_initial_state;
};
void rank_one_scan_backward(Exec& exec, const RankOneScan& in, ConstView initial_state,
                            ConstView d_out, ConstView d_final_state,
                            const RankOneScanGradients& gradients, ConstView kept = {});

}  // namespace weft::kernels
