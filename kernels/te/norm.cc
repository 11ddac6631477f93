#include "kernels/te/norm.h"

#include <transformer_engine/normalization.h>

#include "kernels/te/call.h"

namespace weft::kernels::te {
namespace {

using transformer_engine::TensorWrapper;

int multiprocessors() {
  int device = 0, count = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
  return count;
}

// A first call with an empty workspace only tells how large it must be.
template <class Call>
void with_workspace(CUstream_st* stream, Call&& call) {
  TensorWrapper asked;
  call(asked.data());
  const Workspace memory(stream, asked.bytes());
  TensorWrapper given(memory.data(), asked.shape(), asked.dtype());
  call(given.data());
}

void check_rows(ConstView x, ConstView weight, ConstView inv_rms) {
  WEFT_CHECK(weight.shape.elements() == x.width() && inv_rms.shape.elements() == x.rows(),
             "rms_norm: weight {} and statistics {} for rows {}", weight.shape, inv_rms.shape,
             x.shape);
}

}  // namespace

void rms_norm_forward(CUstream_st* stream, ConstView x, ConstView weight, float epsilon, View y,
                      View inv_rms) {
  check_rows(x, weight, inv_rms);
  const TensorWrapper in = wrap_rows(x), gamma = wrap_flat(weight);
  TensorWrapper out = wrap_rows(y), statistics = wrap_flat(inv_rms);
  const int processors = multiprocessors();
  with_workspace(stream, [&](NVTETensor workspace) {
    nvte_rmsnorm_fwd(in.data(), gamma.data(), epsilon, out.data(), statistics.data(), workspace,
                     processors, false, stream);
  });
}

void rms_norm_backward(CUstream_st* stream, ConstView dy, ConstView x, ConstView weight,
                       ConstView inv_rms, View dx, View d_weight) {
  check_rows(x, weight, inv_rms);
  const TensorWrapper d_out = wrap_rows(dy), in = wrap_rows(x), gamma = wrap_flat(weight),
                      statistics = wrap_flat(inv_rms);
  TensorWrapper d_in = wrap_rows(dx), d_gamma = wrap_flat(d_weight);
  const int processors = multiprocessors();
  with_workspace(stream, [&](NVTETensor workspace) {
    nvte_rmsnorm_bwd(d_out.data(), in.data(), statistics.data(), gamma.data(), d_in.data(),
                     d_gamma.data(), workspace, processors, false, stream);
  });
}

}  // namespace weft::kernels::te
