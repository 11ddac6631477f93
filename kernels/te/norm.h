#pragma once

#include "core/memory/exec.h"

struct CUstream_st;

// RMSNorm of kernels/rows/norm.h on a CUDA device, by TransformerEngine. Compiled and linked where
// TransformerEngine is found; it has not run, for want of a GPU. Enqueued on `stream`; views are in
// device memory, x, y and weight of one type.
namespace weft::kernels::te {

void rms_norm_forward(CUstream_st* stream, ConstView x, ConstView weight, float epsilon, View y,
                      View inv_rms);

// d_weight is overwritten here, not added to.
void rms_norm_backward(CUstream_st* stream, ConstView dy, ConstView x, ConstView weight,
                       ConstView inv_rms, View dx, View d_weight);

}  // namespace weft::kernels::te
