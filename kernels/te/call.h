#pragma once

#include <cuda_runtime_api.h>
#include <transformer_engine/transformer_engine.h>

#include <vector>

#include "core/base/error.h"
#include "core/memory/exec.h"

namespace weft::kernels::te {

inline void check_cuda(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw Error("{}: {}", call, cudaGetErrorString(code));
}

inline transformer_engine::DType te_type(DType dtype) {
  return dtype == DType::kBF16 ? transformer_engine::DType::kBFloat16
                               : transformer_engine::DType::kFloat32;
}

// A view as TransformerEngine takes it: it owns nothing. Its tensors carry no const.
inline transformer_engine::TensorWrapper wrap(ConstView x, const std::vector<size_t>& shape) {
  WEFT_CHECK(x.contiguous(), "TransformerEngine: rows of {} lie {} elements apart", x.shape,
             x.row_stride);
  return {const_cast<void*>(x.data), shape, te_type(x.dtype)};
}
inline transformer_engine::TensorWrapper wrap_rows(ConstView x) {
  return wrap(x, {static_cast<size_t>(x.rows()), static_cast<size_t>(x.width())});
}
inline transformer_engine::TensorWrapper wrap_flat(ConstView x) {
  return wrap(x, {static_cast<size_t>(x.shape.elements())});
}

// Device memory for one call, in the order of the stream.
class Workspace {
 public:
  Workspace(CUstream_st* stream, size_t bytes) : stream_(stream) {
    if (bytes > 0) check_cuda(cudaMallocAsync(&data_, bytes, stream), "cudaMallocAsync");
  }
  ~Workspace() {
    if (data_ != nullptr) cudaFreeAsync(data_, stream_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  void* data() const { return data_; }

 private:
  CUstream_st* stream_;
  void* data_ = nullptr;
};

}  // namespace weft::kernels::te
