#pragma once

#include <span>

#include "kernels/scan/scan_fields.h"

// Recurrences with `states` numbers per channel, each of which decays on its own. With rate
// r = e^{a_log} and step dt >= 0:
//   M_t[n, c] = e^{-dt_c r_cn} M_{t-1}[n, c] + dt_c b_n x_{t,c},   y_{t,c} = sum_n c_n M_t[n, c] +
//   skip_c x_{t,c}
// There is no product of matrices in this: the kernels walk through time with many channels at
// once. What backward needs of the states it computes again, chunk by chunk.
//
// x, out: [tokens, channels] f32 or bf16, rows may be strided. a_log f32 [channels, states]; skip
// f32 [channels] or absent (data == nullptr). documents: offsets, n + 1 entries; each starts
// from its own initial state. States are f32 [n, states, channels]; absent: zero, not computed.
namespace weft::kernels {

// Step, input and read come from the token (Mamba): dt f32 [tokens, channels]; b, c [tokens,
// states], f32 or bf16, the same for all channels.
struct SelectiveScan {
  static constexpr const char* kName = "selective_scan";
  using Gradients = struct SelectiveScanGradients;
  static std::span<const ScanField<SelectiveScan>> fields();

  ConstView x, dt, b, c;
  ConstView a_log, skip;
  std::span<const int32_t> documents;
};
// out may be absent, when only the final state is wanted.
void selective_scan_forward(Exec& exec, const SelectiveScan& in, ConstView initial_state, View out,
                            View final_state);
// Overwritten: dx, db, dc (f32 or bf16), d_dt f32, d_initial_state (may be absent). Added to:
// d_a_log, d_skip f32 (the latter absent when there is no skip).
struct SelectiveScanGradients {
  View dx, d_dt, db, dc;
  View d_a_log, d_skip;
  View d_initial_state;
};
void selective_scan_backward(Exec& exec, const SelectiveScan& in, ConstView initial_state,
                             ConstView d_out, ConstView d_final_state,
                             const SelectiveScanGradients& gradients);

// Factors per channel, equal for all tokens (S4): log_dt f32 [channels]; b, c f32
// [channels, states].
struct StaticScan {
  static constexpr const char* kName = "static_scan";
  using Gradients = struct StaticScanGradients;
  static std::span<const ScanField<StaticScan>> fields();

  ConstView x;
  ConstView log_dt, a_log, b, c, skip;
  std::span<const int32_t> documents;
};
void static_scan_forward(Exec& exec, const StaticScan& in, ConstView initial_state, View out,
                         View final_state);
// Overwritten: dx, d_initial_state (may be absent). Added to, f32: the others.
struct StaticScanGradients {
  View dx;
  View d_log_dt, d_a_log, db, dc, d_skip;
  View d_initial_state;
};
void static_scan_backward(Exec& exec, const StaticScan& in, ConstView initial_state,
                          ConstView d_out, ConstView d_final_state,
                          const StaticScanGradients& gradients);

}  // namespace weft::kernels
