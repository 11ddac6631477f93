#pragma once

#include "kernels/sequence/token_shift.h"

// The CPU's side of kernels/sequence/token_shift.h: arguments are checked.
namespace weft::kernels::cpu {

void token_shift_forward(Exec& exec, const TokenShift& shift, ConstView x, ConstView logits, View y,
                         const ShiftHistory& history);
void token_shift_backward(Exec& exec, const TokenShift& shift, ConstView x, ConstView logits,
                          ConstView dy, View dx, View d_logits,
                          const ShiftHistoryGradients& history);

}  // namespace weft::kernels::cpu
