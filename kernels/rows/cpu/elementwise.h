#pragma once

#include "kernels/rows/elementwise.h"

// The CPU's side of kernels/rows/elementwise.h: arguments are checked.
namespace weft::kernels::cpu {

void copy(Exec& exec, ConstView x, View y);
void add(Exec& exec, ConstView a, ConstView b, View y);
void scale(Exec& exec, ConstView x, float factor, View y);
void shift_scale(Exec& exec, ConstView x, float offset, float factor, View y);
void fill(Exec& exec, View y, float value);
void add_bias(Exec& exec, ConstView bias, View y);

}  // namespace weft::kernels::cpu
