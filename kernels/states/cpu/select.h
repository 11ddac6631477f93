#pragma once

#include "kernels/states/select.h"

// The CPU's side of kernels/states/select.h: arguments are checked.
namespace weft::kernels::cpu {

void pick_states(Exec& exec, ConstView from, ConstView index, ConstView otherwise, View to);
void pass_states(Exec& exec, ConstView passes, ConstView state, ConstView otherwise, View to);

}  // namespace weft::kernels::cpu
