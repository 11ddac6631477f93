#pragma once

#include "kernels/rows/rope.h"

// The CPU's side of kernels/rows/rope.h: arguments are checked.
namespace weft::kernels::cpu {

// Negative positions are refused.
void rope(Exec& exec, const Rope& rope, ConstView positions, View x);

}  // namespace weft::kernels::cpu
