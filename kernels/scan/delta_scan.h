#pragma once

#include <span>

#include "kernels/scan/scan_fields.h"

// The (gated) delta rule, in chunks (per head; vectors are rows):
//   M_t = e^{g_t} (I - b_t k_t^T k_t) M_{t-1} + b_t k_t^T v_t,    o_t = scale * q_t M_t
namespace weft::kernels {

// q, k [tokens, qk_heads * key], v [tokens, heads * value], all f32 or all bf16, rows may be
// strided. Head h reads q and k of head h / (heads / qk_heads). beta (b) f32 [tokens, heads];
// log_decay (g <= 0) f32 [tokens, heads], or absent (data == nullptr) for g = 0. documents:
// offsets, n + 1 entries; each starts from its own initial state. States are f32 [n, heads, key,
// value].
struct DeltaScan {
  static constexpr const char* kName = "delta_scan";
  using Gradients = struct DeltaScanGradients;
  static std::span<const ScanField<DeltaScan>> fields();

  ConstView q, k, v;
  ConstView beta, log_decay;
  std::span<const int32_t> documents;
  int64_t heads = 1, qk_heads = 1;
  int64_t key = 0, value = 0;
  float scale = 1.0f;
};

// Floats that forward may leave for backward: its results for every chunk.
int64_t delta_scan_kept(Exec& exec, const DeltaScan& in);

// out [tokens, heads * value], type of v or f32. States may be absent: zero, not computed. kept:
// f32 of that many numbers; absent: backward recomputes them. Where out is
// absent, only the final state is computed: q is not read, nothing is kept.
void delta_scan_forward(Exec& exec, const DeltaScan& in, ConstView initial_state, View out,
                        View final_state, View kept = {});

// Overwritten: dq, dk, dv (type of the inputs or f32), d_beta and d_log_decay f32 (the latter not
// given when there is no decay), d_initial_state (may be absent).
struct DeltaScanGradients {
  View dq, dk, dv;
  View d_beta, d_log_decay;
  View d_initial_state;
};
void delta_scan_backward(Exec& exec, const DeltaScan& in, ConstView initial_state, ConstView d_out,
                         ConstView d_final_state, const DeltaScanGradients& gradients,
                         ConstView kept = {});

}  // namespace weft::kernels
