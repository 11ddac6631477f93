#pragma once

#include <span>

#include "kernels/scan/scan_fields.h"

// Linear attention with one decay per head and token, in chunks:
//   M_t = e^{g_t} M_{t-1} + k_t^T v_t,   o_t = scale * q_t M_t        (per head; vectors are rows)
namespace weft::kernels {

// q [tokens, heads * key], k [tokens, kv_heads * key], v [tokens, kv_heads * value], all f32 or all
// bf16, rows may be strided. Query head h reads kv head h / (heads / kv_heads). With qk_heads (not
// 0; kv_heads is not looked at then) groups of heads share q and k instead: q, k [tokens, qk_heads
// * key], v [tokens, heads * value]. log_decay (g <= 0, or at least no sum over neighbouring tokens
// above 1; f32): [tokens, heads], or [heads] when it is the same for every token, or empty for g =
// 0. documents: offsets of the documents, n + 1 entries from 0 to tokens; each starts from its own
// initial state. States are f32 [n, heads, key, value].
struct ScalarScan {
  static constexpr const char* kName = "scalar_scan";
  using Gradients = struct ScalarScanGradients;
  static std::span<const ScanField<ScalarScan>> fields();

  ConstView q, k, v;
  ConstView log_decay;
  std::span<const int32_t> documents;
  int64_t heads = 1, kv_heads = 1;
  int64_t key = 0, value = 0;
  float scale = 1.0f;
  int64_t qk_heads = 0;
};

// How many heads each input has.
struct ScalarHeads {
  int64_t q, k, v;
};
ScalarHeads heads_of(const ScalarScan& in);

// Floats that forward may leave for backward: the states between chunks.
int64_t scalar_scan_kept(Exec& exec, const ScalarScan& in);

// out [tokens, heads * value], type of v or f32. initial_state may be empty (zero), final_state may
// be empty (not wanted). kept: f32 of that many numbers; absent: backward recomputes them.
void scalar_scan_forward(Exec& exec, const ScalarScan& in, ConstView initial_state, View out,
                         View final_state, View kept = {});

// Gradients: type of the inputs or f32. Everything is overwritten. d_log_decay f32, empty when not
// wanted ([heads] static decays have none); d_initial_state may be empty; d_final_state may be
// empty (zero).
struct ScalarScanGradients {
  View dq, dk, dv;
  View d_log_decay;
  View d_initial_state;
};
void scalar_scan_backward(Exec& exec, const ScalarScan& in, ConstView initial_state,
                          ConstView d_out, ConstView d_final_state,
                          const ScalarScanGradients& gradients, ConstView kept = {});

// Effect of each document on a state that enters it, M -> e^total M + update: update f32 [n, heads,
// key, value], total f32 [n, heads]. Likewise the gradient of the entering states that comes from
// d_out alone. Cheaper than forward and backward: no outputs, no scores inside chunks.
void scalar_scan_summary(Exec& exec, const ScalarScan& in, View update, View total);
void scalar_scan_state_gradient(Exec& exec, const ScalarScan& in, ConstView d_out,
                                View d_initial_state);

}  // namespace weft::kernels
