#pragma once

#include "kernels/rows/gather.h"

// The CPU's side of kernels/rows/gather.h: arguments are checked.
namespace weft::kernels::cpu {

// Rows beyond x are refused.
void gather_rows(Exec& exec, ConstView x, ConstView index, View y);

}  // namespace weft::kernels::cpu
