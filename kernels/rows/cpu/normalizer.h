#pragma once

#include "kernels/rows/normalizer.h"

// The CPU's side of kernels/rows/normalizer.h: arguments are checked.
namespace weft::kernels::cpu {

void append_ones(Exec& exec, int64_t heads, ConstView x, View wide);
void drop_last_channel(Exec& exec, int64_t heads, ConstView wide, View x);
void divide_by_last_channel(Exec& exec, int64_t heads, ConstView wide, View out, float epsilon);
void divide_by_last_channel_backward(Exec& exec, int64_t heads, ConstView wide, ConstView d_out,
                                     View d_wide, float epsilon);

}  // namespace weft::kernels::cpu
