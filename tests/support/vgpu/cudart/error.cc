#include <cuda_runtime_api.h>

#include <utility>

#include "tests/support/vgpu/host/api.h"

using namespace vgpu;

namespace {

// Names and texts of the errors that the virtual GPU returns; NVIDIA's own texts are longer.
struct ErrorText {
  cudaError_t code;
  const char* name;
  const char* text;
};
#define VGPU_ERROR(code, text) \
  { code, #code, text }
constexpr ErrorText kErrors[] = {
    VGPU_ERROR(cudaSuccess, "no error"),
    VGPU_ERROR(cudaErrorInvalidValue, "invalid argument"),
    VGPU_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    VGPU_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    VGPU_ERROR(cudaErrorInvalidSymbol, "invalid device symbol"),
    VGPU_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    VGPU_ERROR(cudaErrorInsufficientDriver,
               "CUDA driver version is insufficient for CUDA runtime version"),
    VGPU_ERROR(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    VGPU_ERROR(cudaErrorMissingConfiguration, "__global__ function call is not configured"),
    VGPU_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    VGPU_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    VGPU_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    VGPU_ERROR(cudaErrorNoKernelImageForDevice,
               "no kernel image is available for execution on the device"),
    VGPU_ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    VGPU_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    VGPU_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    VGPU_ERROR(cudaErrorNotReady, "device not ready"),
    VGPU_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    VGPU_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    VGPU_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    VGPU_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    VGPU_ERROR(cudaErrorNotSupported, "operation not supported"),
    VGPU_ERROR(cudaErrorStreamCaptureUnsupported,
               "operation not permitted when stream is capturing"),
    VGPU_ERROR(cudaErrorStreamCaptureInvalidated,
               "operation failed due to a previous error during capture"),
    VGPU_ERROR(cudaErrorStreamCaptureMerge,
               "operation would result in a merge of separate capture sequences"),
    VGPU_ERROR(cudaErrorStreamCaptureUnmatched,
               "capture was not ended in the same stream as it began"),
    VGPU_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    VGPU_ERROR(cudaErrorStreamCaptureIsolation,
               "dependency created on uncaptured work in another stream"),
    VGPU_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef VGPU_ERROR

const ErrorText& find(cudaError_t code) {
  static constexpr ErrorText kOther{cudaErrorUnknown, "cudaErrorUnknown",
                                    "unrecognized error code"};
  for (const ErrorText& e : kErrors) {
    if (e.code == code) return e;
  }
  return kOther;
}

}  // namespace

extern "C" {

const char* cudaGetErrorName(cudaError_t code) { return find(code).name; }
const char* cudaGetErrorString(cudaError_t code) { return find(code).text; }

// A sticky error is returned by every call; reading it does not clear it.
cudaError_t cudaPeekAtLastError() {
  Runtime& r = Runtime::get();
  const Lock lock(r.mutex);
  const cudaError_t sticky = r.sticky(r.current_device());
  return sticky != cudaSuccess ? sticky : last_error;
}
cudaError_t cudaGetLastError() {
  const cudaError_t code = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return code;
}

}  // extern "C"
