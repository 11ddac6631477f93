#pragma once

#include "kernels/rows/reductions.h"

// The CPU's side of kernels/rows/reductions.h: arguments are checked.
namespace weft::kernels::cpu {

void column_sum(Exec& exec, ConstView x, View sum);
void column_mean(Exec& exec, ConstView x, View mean);
void add_sum(Exec& exec, ConstView x, View sum);
void sum_of_squares(Exec& exec, ConstView x, View sum);

}  // namespace weft::kernels::cpu
