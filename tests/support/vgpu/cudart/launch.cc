#include <cuda_runtime_api.h>

#include <fmt/format.h>

#include <algorithm>

#include "tests/support/vgpu/host/api.h"
#include "tests/support/vgpu/host/kernels.h"

using vgpu::CallError;
using vgpu::HostKernel;
using vgpu::Kernels;
using vgpu::Runtime;

namespace {

HostKernel& kernel_of(const void* stub) {
  HostKernel* kernel = Kernels::get().find(stub);
  if (kernel == nullptr) throw CallError{cudaErrorInvalidDeviceFunction};
  return *kernel;
}

}  // namespace

extern "C" {

cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes, cudaStream_t stream) {
  VGPU_API({ return launch(r, {stub, grid, block, shared_bytes, stream, arguments}); });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* stub, void** arguments) {
  VGPU_API({
    if (c->numAttrs != 0) {
      r.mistake(cudaErrorNotSupported, fmt::format("launch attribute {} is not one the virtual GPU "
                                                   "knows",
                                                   static_cast<int>(c->attrs[0].id)));
    }
    return launch(r, {stub, c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream, arguments});
  });
}

// Blocks of the virtual GPU run one after the other: none can wait for another.
cudaError_t cudaLaunchCooperativeKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) {
  VGPU_API({
    r.mistake(cudaErrorNotSupported, "the virtual GPU launches no cooperative kernels");
    return cudaErrorNotSupported;
  });
}

cudaError_t cudaFuncSetAttribute(const void* stub, cudaFuncAttribute attribute, int value) {
  VGPU_API({
    HostKernel& kernel = kernel_of(stub);
    switch (attribute) {
      case cudaFuncAttributeMaxDynamicSharedMemorySize: {
        const int fixed = Kernels::get().resources(r.options, kernel.name).static_shared;
        if (value < 0 || value > r.options.architecture->shared_per_block - fixed) {
          return cudaErrorInvalidValue;
        }
        kernel.dynamic_shared[static_cast<size_t>(r.current_device())] =
            std::max(value, vgpu::kSharedWithoutAsking - fixed);
        return cudaSuccess;
      }
      case cudaFuncAttributePreferredSharedMemoryCarveout: return cudaSuccess;  // a hint
      default: return cudaErrorNotSupported;
    }
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* stub) {
  VGPU_API({
    const HostKernel& kernel = kernel_of(stub);
    const auto needs = Kernels::get().resources(r.options, kernel.name);
    const int allowed = kernel.dynamic_shared[static_cast<size_t>(r.current_device())];
    *attributes = {};
    attributes->numRegs = needs.registers;
    attributes->sharedSizeBytes = static_cast<size_t>(needs.static_shared);
    attributes->maxThreadsPerBlock = 1024;
    attributes->binaryVersion = attributes->ptxVersion = r.options.architecture->number;
    attributes->maxDynamicSharedSizeBytes =
        allowed > 0 ? allowed : vgpu::kSharedWithoutAsking - needs.static_shared;
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* stub,
                                                                   int threads, size_t shared_bytes,
                                                                   unsigned) {
  VGPU_API({
    const auto needs = Kernels::get().resources(r.options, kernel_of(stub).name);
    const vgpu::Architecture& a = *r.options.architecture;
    const int warps = (threads + 31) / 32;
    // Every block takes 1 KB of shared memory for itself.
    const int shared = static_cast<int>(shared_bytes) + needs.static_shared + 1024;
    int most =
        std::min(a.threads_per_multiprocessor / (32 * warps), a.shared_per_multiprocessor / shared);
    if (needs.registers > 0) {
      most = std::min(most, 65536 / ((needs.registers * 32 + 255) / 256 * 256 * warps));
    }
    *blocks = std::min(most, 32);
    return cudaSuccess;
  });
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* stub,
                                                          int threads, size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, stub, threads, shared_bytes,
                                                                0);
}

// Clusters are for kernels of sm_90a and later, which no twin can be made of.
cudaError_t cudaOccupancyMaxActiveClusters(int*, const void*, const cudaLaunchConfig_t*) {
  return cudaErrorNotSupported;
}
cudaError_t cudaOccupancyMaxPotentialClusterSize(int*, const void*, const cudaLaunchConfig_t*) {
  return cudaErrorNotSupported;
}

}  // extern "C"
