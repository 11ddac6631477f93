#pragma once

#include "kernels/gates/phase.h"

// The CPU's side of kernels/gates/phase.h: arguments are checked.
namespace weft::kernels::cpu {

void running_phase_forward(Exec& exec, std::span<const int32_t> documents, ConstView theta,
                           View phase);
void running_phase_backward(Exec& exec, std::span<const int32_t> documents, ConstView d_phase,
                            ConstView d_last, View d_theta);
void turn_forward(Exec& exec, int64_t heads, ConstView phase, ConstView x, View y);
void turn_backward(Exec& exec, int64_t heads, const TurnBackward& in);

}  // namespace weft::kernels::cpu
