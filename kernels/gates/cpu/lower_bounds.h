#pragma once

#include "kernels/gates/lower_bounds.h"

// The CPU's side of kernels/gates/lower_bounds.h: arguments are checked.
namespace weft::kernels::cpu {

void lower_bound_forward(Exec& exec, int64_t layer, ConstView raw, View bound);
void lower_bound_backward(Exec& exec, int64_t layer, ConstView raw, ConstView d_bound, View d_raw);

}  // namespace weft::kernels::cpu
