#pragma once

#include "kernels/matrix/gemm.h"

struct CUstream_st;

// Matrix products of kernels/matrix/gemm.h on a CUDA device, by cuBLASLt. Compiled and linked where
// there is nvcc; they have not run, for want of a GPU. Enqueued on `stream`; views are in device
// memory.
namespace weft::kernels::cublaslt {

// c [m, n] = op(a) [m, k] op(b) [k, n]
void gemm(CUstream_st* stream, ConstView a, ConstView b, View c, GemmOptions options = {});

}  // namespace weft::kernels::cublaslt
