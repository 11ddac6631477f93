#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/support/vgpu/host/api.h"

using namespace vgpu;

namespace {

const Architecture& architecture_of(Runtime& r, int device) {
  if (r.options.devices == 0) throw CallError{cudaErrorNoDevice};
  if (device < 0 || device >= r.options.devices) throw CallError{cudaErrorInvalidDevice};
  return *r.options.architecture;
}

// Attributes that training programs query. Others are refused rather than guessed.
cudaError_t attribute_of(const Architecture& a, cudaDeviceAttr attribute, int device, int* value) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = a.major(); break;
    case cudaDevAttrComputeCapabilityMinor: *value = a.minor(); break;
    case cudaDevAttrMultiProcessorCount: *value = a.multiprocessors; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = 0x7fffffff; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = a.shared_per_block; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = a.shared_per_multiprocessor; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = 1024; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = a.threads_per_multiprocessor; break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
    case cudaDevAttrL2CacheSize: *value = a.l2_bytes; break;
    case cudaDevAttrTotalConstantMemory: *value = 64 << 10; break;
    case cudaDevAttrManagedMemory:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels: *value = 1; break;
    case cudaDevAttrConcurrentManagedAccess:  // checked as if it were not allowed
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrIntegrated:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrComputeMode: *value = 0; break;
    case cudaDevAttrPciBusId: *value = device + 1; break;
    default: return cudaErrorNotSupported;
  }
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  VGPU_API_ALWAYS({
    *count = r.options.devices;
    if (r.options.driver_version < CUDART_VERSION / 1000 * 1000) return cudaErrorInsufficientDriver;
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}
cudaError_t cudaGetDevice(int* device) {
  VGPU_API_ALWAYS({
    *device = r.current_device();
    return cudaSuccess;
  });
}
cudaError_t cudaSetDevice(int device) {
  VGPU_API_ALWAYS({
    r.set_device(device);
    return r.sticky(device);
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  VGPU_API({ return attribute_of(architecture_of(r, device), attribute, device, value); });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  VGPU_API({
    const Architecture& a = architecture_of(r, device);
    *p = {};
    std::snprintf(p->name, sizeof p->name, "%s", a.name);
    p->uuid.bytes[0] = static_cast<char>(device + 1);
    p->totalGlobalMem = r.options.memory_bytes;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = static_cast<size_t>(a.shared_per_block);
    p->sharedMemPerMultiprocessor = static_cast<size_t>(a.shared_per_multiprocessor);
    p->reservedSharedMemPerBlock = 1024;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->maxThreadsPerMultiProcessor = a.threads_per_multiprocessor;
    p->maxBlocksPerMultiProcessor = 32;
    p->major = a.major(), p->minor = a.minor();
    p->multiProcessorCount = a.multiprocessors;
    p->l2CacheSize = a.l2_bytes;
    p->managedMemory = p->unifiedAddressing = p->concurrentKernels = 1;
    p->pciBusID = device + 1;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetPCIBusId(char* to, int bytes, int device) {
  VGPU_API({
    architecture_of(r, device);
    std::snprintf(to, static_cast<size_t>(bytes), "0000:%02X:00.0",
                  static_cast<unsigned>(device + 1));
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  VGPU_API_ALWAYS({
    *version = r.options.driver_version;
    return cudaSuccess;
  });
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

}  // extern "C"
