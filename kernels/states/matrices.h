#pragma once

#include "core/memory/exec.h"

// States and transitions as matrices, one per document and head: f32, contiguous, [..., rows,
// columns].
namespace weft::kernels {

// Every matrix is rows first .. first + rows of the identity: ones at (i, first + i), else zeros.
void set_identity(Exec& exec, int64_t first, View matrices);

// y [..., columns, rows] = the transpose of each matrix of x [..., rows, columns]
void transpose_matrices(Exec& exec, ConstView x, View y);

}  // namespace weft::kernels
