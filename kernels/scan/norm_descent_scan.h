#pragma once

#include <span>

#include "kernels/scan/scan_fields.h"

// Descent on |k + LayerNorm(k M + n) - v|^2 / 2, gradients taken where the token's mini-batch began
// (the linear model of TTT; per head, vectors are rows, d wide):
//   z = k_t A_t + a_t,   zh = (z - mean) / sqrt(var + epsilon),   e = (w zh + c - (v_t - k_t)) w
//   u_t = (e - mean(e) - zh mean(e zh)) / sqrt(var + epsilon)                  dloss / dz
//   M_t = M_{t-1} - eta_t k_t^T u_t,   n_t = n_{t-1} - eta_t u_t,   o_t = scale * q_t M_t + n_t
// (A_t, a_t) are (M, n) as the mini-batch of t found them: a document is cut into mini-batches of
// `mini_batch` tokens, counted from its start. A mini-batch is computed by products of matrices;
// mini-batches follow each other, since the rule is not affine in (M, n).
namespace weft::kernels {

// q, k, v [tokens, heads * width], f32 or bf16 each on its own, rows may be strided; eta f32
// [tokens, heads], rows may be strided; w, c f32 [heads, width]. documents: offsets, n + 1 entries;
// document d begins after `before[d]` of its tokens.
struct NormDescentScan {
  static constexpr const char* kName = "norm_descent_scan";
  using Gradients = struct NormDescentGradients;
  static std::span<const ScanField<NormDescentScan>> fields();

  ConstView q, k, v;
  ConstView eta;
  ConstView w, c;
  std::span<const int32_t> documents, before;
  int64_t heads = 1, width = 0;
  int64_t mini_batch = 16;
  float scale = 1.0f, epsilon = 1e-6f;
};

// m, anchor_m f32 [n, heads, width, width], n, anchor_n f32 [n, heads, width]. Entering: what is
// absent is zero, but for the anchor (of the mini-batch that the document is in), which is then
// (m, n). Leaving: absent ones are not computed.
struct NormDescentStates {
  ConstView m = {}, n = {}, anchor_m = {}, anchor_n = {};
};
struct NormDescentStatesOut {
  View m = {}, n = {}, anchor_m = {}, anchor_n = {};
};

// Floats that forward may leave for backward: the states of every 16th mini-batch.
int64_t norm_descent_scan_kept(Exec& exec, const NormDescentScan& in);

// out [tokens, heads * width], f32 or bf16. kept: f32 of that many numbers; absent: backward
// recomputes them.
void norm_descent_scan_forward(Exec& exec, const NormDescentScan& in,
                               const NormDescentStates& entering, View out,
                               const NormDescentStatesOut& leaving, View kept);

// Overwritten, but for d_w and d_c, which are added to; `entering` where wanted (with no anchor
// given, its gradient is part of that of m and n).
struct NormDescentGradients {
  View dq, dk, dv;
  View d_eta;
  View d_w, d_c;
  NormDescentStatesOut entering = {};
};
void norm_descent_scan_backward(Exec& exec, const NormDescentScan& in,
                                const NormDescentStates& entering, ConstView d_out,
                                const NormDescentStates& d_leaving,
                                const NormDescentGradients& gradients, ConstView kept);

}  // namespace weft::kernels
