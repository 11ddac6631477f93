#pragma once

#include <span>

#include "kernels/scan/scan_fields.h"

// Descent with momentum and decay on |k M - v|^2 / 2, in chunks (per head; vectors are rows):
//   S_t = eta_t S_{t-1} - theta_t k_t^T (k_t A_t - v_t)
//   M_t = (1 - alpha_t) M_{t-1} + S_t,    o_t = scale * q_t M_t
// where A_t is M as the mini-batch of t found it: a document is cut into mini-batches of
// `mini_batch` tokens, counted from its start. (Titans; without alpha and eta, the linear model of
// TTT; with mini-batches of one token as well, the delta rule.)
namespace weft::kernels {

// q, k [tokens, heads * key], v [tokens, heads * value], f32 or bf16, rows may be strided. theta,
// alpha, eta f32 [tokens, heads], rows may be strided; alpha and eta may be absent: 0.
// documents: offsets, n + 1 entries; document d begins after `before[d]` of its tokens.
struct MomentumScan {
  static constexpr const char* kName = "momentum_scan";
  using Gradients = struct MomentumScanGradients;
  static std::span<const ScanField<MomentumScan>> fields();

  ConstView q, k, v;
  ConstView theta, alpha, eta;
  std::span<const int32_t> documents, before;
  int64_t heads = 1, key = 0, value = 0;
  int64_t mini_batch = 1;
  float scale = 1.0f;
};

// f32 [n, heads, key, value] each. Entering: what is absent is zero, but for the anchor (A of
// the mini-batch that the document is in), which is then M. Leaving: absent ones are not computed.
struct MomentumStates {
  ConstView m = {}, s = {}, anchor = {};
};
struct MomentumStatesOut {
  View m = {}, s = {}, anchor = {};
};

// Floats that forward may leave for backward: the states between chunks.
int64_t momentum_scan_kept(Exec& exec, const MomentumScan& in);

// out [tokens, heads * value], type of v or f32. kept: f32 of that many numbers; absent:
// backward recomputes them. Where out is absent, only the leaving states
// are wanted: q's numbers are not read, nothing is kept.
void momentum_scan_forward(Exec& exec, const MomentumScan& in, const MomentumStates& entering,
                           View out, const MomentumStatesOut& leaving, View kept = {});

// Overwritten; d_alpha and d_eta only where alpha and eta are given; `entering` where wanted (with
// no anchor given, its gradient is part of m's).
struct MomentumScanGradients {
  View dq, dk, dv;
  View d_theta, d_alpha, d_eta;
  MomentumStatesOut entering = {};
};
void momentum_scan_backward(Exec& exec, const MomentumScan& in, const MomentumStates& entering,
                            ConstView d_out, const MomentumStates& d_leaving,
                            const MomentumScanGradients& gradients, ConstView kept = {});

}  // namespace weft::kernels
