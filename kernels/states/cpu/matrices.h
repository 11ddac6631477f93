#pragma once

#include "kernels/states/matrices.h"

// The CPU's side of kernels/states/matrices.h: arguments are checked.
namespace weft::kernels::cpu {

void set_identity(Exec& exec, int64_t first, View matrices);
void transpose_matrices(Exec& exec, ConstView x, View y);

}  // namespace weft::kernels::cpu
