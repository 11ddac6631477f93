#pragma once

#include "kernels/routing/mixture.h"

// The CPU's side of kernels/routing/mixture.h: arguments are checked.
namespace weft::kernels::cpu {

void mix_rows_forward(Exec& exec, ConstView row, ConstView rows, ConstView weight, View y);
void mix_rows_backward(Exec& exec, ConstView row, const MixRowsBackward& in);

}  // namespace weft::kernels::cpu
