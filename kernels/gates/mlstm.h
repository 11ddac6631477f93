#pragma once

#include <span>

#include "core/memory/exec.h"
#include "kernels/states/mlstm.h"

// The exponential gates of mLSTM around a scan with scalar decay. In the stabilised form of the
// model,
//   m_t = max(l_t + m_{t-1}, i_t)
//   C_t = e^{l_t + m_{t-1} - m_t} C_{t-1} + e^{i_t - m_t} k_t^T v_t,   n_t likewise
// with l = logsigmoid(f), the states are e^{-m} times those of the plain recurrence
//   C_t = e^{l_t} C_{t-1} + (e^{i_t} k_t)^T v_t,
// which f32 holds with the same relative precision as long as e^i and sums of it are finite. i is
// bounded by a soft cap (15 in the model). So the scan of kernels/scan/scalar_scan.h runs on
// weighted keys and values (v | 1), giving (numerator | denominator), and m enters only where the
// model is not free of its scale:
//   h = numerator / (max(|denominator|, 1) + 1e-6 e^m)
//
// Keys e^i k would be rounded once more in bf16. With i = p log 2 + r, p an integer, keys 2^p k are
// exact, and the small rest, |r| <= log(2) / 2, is carried by decays and reads:
//   e^{-r_t} C_t = e^{g_t} (e^{-r_{t-1}} C_{t-1}) + (2^{p_t} k_t)^T v_t
//   g_t = l_t + r_{t-1} - r_t
// In f32 r keeps something else small. The scan takes differences of running sums of g over a
// chunk; where much is forgotten those sums are large, and a difference of neighbours loses what
// rounding them lost: 3e-5 of a weight at 500. So g_t is the multiple of 2^-12 nearest to l_t +
// r_{t-1}, whose sums are exact, and r_t, |r| <= 2^-13, what that leaves; keys are e^{i - r} k.
// Either way the gradient of i is that of r, since r may be shifted by anything (only keys, decays
// and reads change, the result does not): sums over keys would say the same, but in them nearly
// everything cancels, since a head whose input gates all move together changes next to nothing.
namespace weft::kernels {

inline constexpr float kMlstmEpsilon = 1e-6f;

// i, f f32 [tokens, heads], rows may be strided; entering m f32 [documents, heads]; not given: no
// state enters, m is 0. r before a document is 0 where a state enters; otherwise nothing decays at
// its first token, and it does not matter.
struct MlstmGates {
  ConstView i, f;
  ConstView entering;
  std::span<const int32_t> documents;
  bool split = false;  // i into p and r, for keys in bf16
};
// log_decay (g), rest (r) and m: f32 [tokens, heads], contiguous.
void mlstm_gates_forward(Exec& exec, const MlstmGates& gates, View log_decay, View rest, View m);
// d_log_decay, d_rest, dm: what reaches g, r and m from outside of the gates; d_leaving_rest and
// d_leaving_m f32 [documents, heads]: what reaches those of the last token (not given: zero).
// Overwritten: di, df (f32), d_entering (may be not given). Contiguous, but for di, df.
struct MlstmGatesBackward {
  ConstView m;
  ConstView d_log_decay, d_rest, dm, d_leaving_rest, d_leaving_m;
  View di, df, d_entering;
};
void mlstm_gates_backward(Exec& exec, const MlstmGates& gates, const MlstmGatesBackward& back);

// keys [tokens, heads * width] = e^{i - r} k; f32 or bf16. Its own transpose: dk from
// d_keys.
void mlstm_keys(Exec& exec, ConstView k, ConstView i, ConstView rest, View keys);

// out [tokens, heads * width] f32 or bf16, from wide f32 [tokens, heads * (width + 1)] = e^{-r}
// (numerator | denominator)
struct MlstmRead {
  ConstView wide, rest, m;
};
void mlstm_read_forward(Exec& exec, const MlstmRead& in, View out);
// d_wide, d_rest, dm f32
void mlstm_read_backward(Exec& exec, const MlstmRead& in, ConstView d_out, View d_wide, View d_rest,
                         View dm);

// y = x - mean of x over each head, which is its own transpose: before an RMSNorm it makes a
// LayerNorm. y may be x.
void center_heads(Exec& exec, int64_t heads, ConstView x, View y);

}  // namespace weft::kernels
