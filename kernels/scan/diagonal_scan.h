#pragma once

#include <span>

#include "kernels/scan/scan_fields.h"

// Linear attention with one decay per key channel and token, in chunks (per head; vectors are
// rows):
//   M_t = diag(e^{g_t}) M_{t-1} + k_t^T v_t,    o_t = scale * q_t M_t
// and, with a bonus u per key channel (RWKV-6), the read before the write:
//   o_t = scale * (q_t M_{t-1} + (q_t * u * k_t) . 1 v_t)
// and, with decays h per value channel too (decaying fast weights),
//   M_t = diag(e^{g_t}) M_{t-1} diag(e^{h_t}) + k_t^T v_t
namespace weft::kernels {

// q [tokens, heads * key], k [tokens, kv_heads * key], v [tokens, kv_heads * value], all f32 or all
// bf16, rows may be strided. Query head h reads kv head h / (heads / kv_heads). log_decay (g <= 0)
// f32 [tokens, kv_heads * key]. bonus f32 [heads * key], or absent (data == nullptr). documents:
// offsets, n + 1 entries; each starts from its own initial state. States are f32 [n, heads, key,
// value].
struct DiagonalScan {
  static constexpr const char* kName = "diagonal_scan";
  using Gradients = struct DiagonalScanGradients;
  static std::span<const ScanField<DiagonalScan>> fields();

  ConstView q, k, v;
  ConstView log_decay;
  ConstView bonus;
  std::span<const int32_t> documents;
  int64_t heads = 1, kv_heads = 1;
  int64_t key = 0, value = 0;
  float scale = 1.0f;
  // h <= 0, f32 [tokens, kv_heads * value], or absent. Not together with a bonus. With it,
  // log_decay may be absent: no decay per key channel.
  ConstView value_log_decay = {};
};

// Floats that forward may leave for backward: the states between chunks.
int64_t diagonal_scan_kept(Exec& exec, const DiagonalScan& in);

// out [tokens, heads * value], type of v or f32. States may be absent: zero, not computed. kept:
// f32 of that many numbers; absent: backward recomputes them. Where out is absent, only
// the final state is wanted: q's numbers are not read, nothing is kept.
void diagonal_scan_forward(Exec& exec, const DiagonalScan& in, ConstView initial_state, View out,
                           View final_state, View kept = {});

// Overwritten: dq, dk, dv (type of the inputs or f32), d_log_decay f32 (absent where
// log_decay is), d_initial_state (may be absent).
// Accumulated: d_bonus f32 [heads * key] (absent when there is no bonus).
struct DiagonalScanGradients {
  View dq, dk, dv;
  View d_log_decay;
  View d_bonus;
  View d_initial_state;
  View d_value_log_decay = {};  // overwritten, f32; given exactly when value_log_decay is
};
void diagonal_scan_backward(Exec& exec, const DiagonalScan& in, ConstView initial_state,
                            ConstView d_out, ConstView d_final_state,
                            const DiagonalScanGradients& gradients, ConstView kept = {});

}  // namespace weft::kernels
