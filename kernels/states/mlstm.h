#pragma once

#include <span>

#include "core/memory/exec.h"

// States of mLSTM between spans: C [n, heads, dk, dv], n [n, heads, dk], m [n, heads], f32,
// contiguous. Scans carry them as one matrix without the scale e^m, wide = (C | n) [n, heads, dk,
// dv + 1]; kernels/gates/mlstm.h says why. Results are overwritten unless said otherwise.
namespace weft::kernels {

inline constexpr float kMlstmNothing =
    -1e30f;  // m where nothing was written yet and nothing entered

struct MlstmState {
  ConstView c, n, m;
};
struct MlstmStateOut {
  View c, n, m;
};

// The state behind a span, whose log decays sum up to b [n, heads] and which leaves `span` when
// nothing enters:
//   m = max(b + m_in, m_span),   C = e^{b + m_in - m} C_in + e^{m_span - m} C_span,   n likewise
void mlstm_apply(Exec& exec, ConstView b, const MlstmState& span, const MlstmState& entering,
                 const MlstmStateOut& leaving);
// d_entering from d_leaving.
void mlstm_apply_adjoint(Exec& exec, ConstView b, const MlstmState& span,
                         const MlstmState& entering, const MlstmState& d_leaving,
                         const MlstmStateOut& d_entering);

// wide = e^m (C | n)
void mlstm_widen(Exec& exec, const MlstmState& state, View wide);
// (d_C | d_n) = e^m d_wide,   d_m += <d_wide, wide>. Without m and wide: no state entered, m is 0.
void mlstm_widen_backward(Exec& exec, ConstView wide, ConstView m, ConstView d_wide,
                          const MlstmStateOut& d);

// (C | n) = e^{rest - m} wide, 0 where m is kMlstmNothing; rest and m [n, heads]
void mlstm_stabilise(Exec& exec, ConstView wide, ConstView rest, ConstView m, View c, View n);
// d_wide = e^{rest - m} (d_C | d_n),   d_rest = <d_wide, wide>,   d_m = d.m - d_rest
struct MlstmWideGradient {
  View wide, rest, m;
};
void mlstm_stabilise_backward(Exec& exec, ConstView wide, ConstView rest, ConstView m,
                              const MlstmState& d, const MlstmWideGradient& out);

// last [documents, width] = the row of every document's last token in rows f32 [tokens, width]; for
// a document without tokens that of `entering` [documents, width], 0 where it is not given.
// documents: offsets of tokens, n + 1 entries.
void last_rows(Exec& exec, std::span<const int32_t> documents, ConstView rows, ConstView entering,
               View last);

}  // namespace weft::kernels
