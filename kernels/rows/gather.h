#pragma once

#include <span>

#include "core/memory/exec.h"

namespace weft::kernels {

// y [index.size(), d]: row i = row index[i] of x [n, d], or zeros where index[i] is negative. Any
// type, the same for both.
void gather_rows(Exec& exec, ConstView x, std::span<const int32_t> index, View y);

}  // namespace weft::kernels
