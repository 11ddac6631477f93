#pragma once

#include <span>

#include "core/memory/exec.h"

// Channels seen from a frame that turns with the token (GateLoop): complex numbers as real ones of
// twice the width. Matrices are [tokens, heads * width], those of the turned frame [tokens, heads *
// 2 * width], each head's first halves before its second; rows may be strided; f32 or bf16 unless
// said otherwise.
namespace weft::kernels {

// phase_t = theta_1 + ... + theta_t inside each document, less whole turns; f32. documents:
// offsets.
void running_phase_forward(Exec& exec, std::span<const int32_t> documents, ConstView theta,
                           View phase);
// d_theta_t = sum over t' >= t of d_phase_t', plus d_last f32 [documents, heads * width], the
// gradient of each document's last phase, where given. d_phase is f32.
void running_phase_backward(Exec& exec, std::span<const int32_t> documents, ConstView d_phase,
                            ConstView d_last, View d_theta);

// y = [x cos(phase) | x sin(phase)] per head; phase f32. Without a phase (data == nullptr): [x |
// x].
void turn_forward(Exec& exec, int64_t heads, ConstView phase, ConstView x, View y);
// dx = ...;  d_phase += ... (f32; not given when there is no phase, when x is not read either)
struct TurnBackward {
  ConstView phase, x, dy;
  View dx, d_phase;
};
void turn_backward(Exec& exec, int64_t heads, const TurnBackward& in);

}  // namespace weft::kernels
