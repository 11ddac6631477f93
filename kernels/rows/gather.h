#pragma once

#include "core/memory/exec.h"

namespace weft::kernels {

// y [m, d]: row i = row index[i] of x [n, d], or zeros where index[i] is negative; index i32 [m].
// Any type, the same for both.
void gather_rows(Exec& exec, ConstView x, ConstView index, View y);

}  // namespace weft::kernels
