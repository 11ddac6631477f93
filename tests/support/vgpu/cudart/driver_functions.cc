#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>

// Functions of the driver that libraries fetch by way of the runtime: queries of the context. Any
// other is reported as missing.
namespace {

CUcontext context() {
  static int the_context;
  return reinterpret_cast<CUcontext>(&the_context);
}
CUresult get_current(CUcontext* to) {
  *to = context();
  return CUDA_SUCCESS;
}
CUresult set_current(CUcontext) { return CUDA_SUCCESS; }
CUresult get_device(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult get_context_device(CUdevice* device) {
  int current = 0;
  cudaGetDevice(&current);
  *device = current;
  return CUDA_SUCCESS;
}
CUresult retain_primary(CUcontext* to, CUdevice) { return get_current(to); }
CUresult error_text(CUresult, const char** text) {
  *text = "error of the virtual GPU's driver";
  return CUDA_SUCCESS;
}

struct Named {
  const char* name;
  void* function;
};
const Named kFunctions[] = {
    {"cuCtxGetCurrent", reinterpret_cast<void*>(get_current)},
    {"cuCtxSetCurrent", reinterpret_cast<void*>(set_current)},
    {"cuCtxGetDevice", reinterpret_cast<void*>(get_context_device)},
    {"cuDeviceGet", reinterpret_cast<void*>(get_device)},
    {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(retain_primary)},
    {"cuGetErrorString", reinterpret_cast<void*>(error_text)},
    {"cuGetErrorName", reinterpret_cast<void*>(error_text)},
};

}  // namespace

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                                        unsigned long long,
                                                        cudaDriverEntryPointQueryResult* result) {
  *function = nullptr;
  for (const Named& f : kFunctions) {
    if (std::strcmp(f.name, name) == 0) *function = f.function;
  }
  if (result != nullptr) {
    *result =
        *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  }
  return cudaSuccess;
}
