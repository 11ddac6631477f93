#pragma once

// Launches, for nvcc; elsewhere tests/support/simt/cuda.h, included before, defines the same names.
#ifdef __CUDACC__

#include <cuda_runtime.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace weft::kernels::cuda {

using Stream = cudaStream_t;
using ::dim3;

inline void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}

// kernel(arguments) in `grid` blocks, each with `shared_bytes` of block_memory. The kernel is a
// template argument so that the virtual GPU (tests/support/vgpu) learns its parameters from this
// call; it must have a name outside its file, hence not be in an anonymous namespace.
template <auto kernel, class... A>
void launch(dim3 grid, unsigned threads, size_t shared_bytes, Stream stream, A&&... arguments) {
  constexpr size_t kWithoutAsking = 48 << 10;  // more needs the attribute, per function and device
  if (shared_bytes > kWithoutAsking) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)),
               "shared memory of a block");
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  check_cuda(cudaLaunchKernelEx(&config, kernel, std::forward<A>(arguments)...), "launch");
}

}  // namespace weft::kernels::cuda

#endif
