#pragma once

#include <span>

#include "core/exec.h"

// The exponential gates of mLSTM around a scan with scalar decay. In the stabilised form of the
// model,
//   m_t = max(l_t + m_{t-1}, i_t),   C_t = e^{l_t + m_{t-1} - m_t} C_{t-1} + e^{i_t - m_t} k_t^T
//   v_t,   n_t likewise
// with l = logsigmoid(f), the states are e^{-m} times those of the plain recurrence
//   C_t = e^{l_t} C_{t-1} + (e^{i_t} k_t)^T v_t,
// which f32 holds with the same relative precision as long as e^i and sums of it are finite. i is
// bounded by a soft cap (15 in the model). So the scan of kernels/scalar_scan.h runs on keys e^i k
// and values (v | 1), giving (numerator | denominator), and m enters only where the model is not
// free of its scale:
//   h = numerator / (max(|denominator|, 1) + 1e-6 e^m)
namespace weft::kernels {

inline constexpr float kMlstmEpsilon = 1e-6f;
inline constexpr float kMlstmNothing =
    -1e30f;  // m where nothing was written yet and nothing entered

// i, f f32 [tokens, heads], rows may be strided; entering m f32 [documents, heads], not given: 0.
struct MlstmGates {
  ConstView i, f;
  ConstView entering;
  std::span<const int32_t> documents;
};
// log_decay (l) and m: f32 [tokens, heads], contiguous.
void mlstm_gates_forward(Exec& exec, const MlstmGates& gates, View log_decay, View m);
// d_log_decay, dm: what reaches l and m from outside of the gates; d_leaving f32 [documents,
// heads]: of the last m (not given: zero). Overwritten: df, d_entering (may be not given). Added
// to: di (f32). Contiguous, but for di, df.
struct MlstmGatesBackward {
  ConstView log_decay, m;
  ConstView d_log_decay, dm, d_leaving;
  View di, df, d_entering;
};
void mlstm_gates_backward(Exec& exec, const MlstmGates& gates, const MlstmGatesBackward& back);

// keys [tokens, heads * width] = e^i k; f32 or bf16, one type.
void mlstm_keys_forward(Exec& exec, ConstView k, ConstView i, View keys);
// From d_keys (f32):  dk = e^i d_keys,   di = d_keys . keys per head. The keys as the scan saw
// them, rounded: a head whose gates all move together changes nothing that is normalized, and only
// so do their gradients cancel.
void mlstm_keys_backward(Exec& exec, ConstView keys, ConstView i, ConstView d_keys, View dk,
                         View di);

// out [tokens, heads * width] f32 or bf16, from wide f32 [tokens, heads * (width + 1)] = (numerator
// | denominator)
void mlstm_read_forward(Exec& exec, ConstView wide, ConstView m, View out);
// d_wide, dm f32
void mlstm_read_backward(Exec& exec, ConstView wide, ConstView m, ConstView d_out, View d_wide,
                         View dm);

// y = x - mean of x over each head, which is its own transpose: before an RMSNorm it makes a
// LayerNorm. y may be x.
void center_heads(Exec& exec, int64_t heads, ConstView x, View y);

}  // namespace weft::kernels
