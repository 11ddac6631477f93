#pragma once

#include "kernels/states/turn.h"

// The CPU's side of kernels/states/turn.h: arguments are checked.
namespace weft::kernels::cpu {

void turn_state(Exec& exec, ConstView factors, Turn turn, ConstView state, View out);
void conjugate_state(Exec& exec, ConstView state, View out);
void last_turns(Exec& exec, std::span<const int32_t> documents, ConstView phase, ConstView g,
                View turns);
void turn_gradient(Exec& exec, ConstView state, ConstView d_state, View d_angle);

}  // namespace weft::kernels::cpu
