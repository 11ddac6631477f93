#pragma once

#include "kernels/rows/head_pool.h"

// The CPU's side of kernels/rows/head_pool.h: arguments are checked.
namespace weft::kernels::cpu {

void head_pool_forward(Exec& exec, const HeadPool& pool, ConstView x, View z);
void head_pool_backward(Exec& exec, const HeadPool& pool, ConstView dz, View dx);

}  // namespace weft::kernels::cpu
