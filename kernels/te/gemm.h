#pragma once

#include "kernels/matrix/gemm.h"

struct CUstream_st;

// Matrix products of kernels/matrix/gemm.h on a CUDA device, by TransformerEngine, whose
// low-precision types come with the same call. Compiled and linked where TransformerEngine is
// found; not run (no GPU).
namespace weft::kernels::te {

// c [m, n] = op(a) [m, k] op(b) [k, n]
void gemm(CUstream_st* stream, ConstView a, ConstView b, View c, GemmOptions options = {});

}  // namespace weft::kernels::te
