#include <cuda.h>

#include "tests/support/vgpu/host/options.h"

// libcuda.so.1: the calls by which a program detects GPUs.
using vgpu::Options;

extern "C" {

CUresult cuInit(unsigned) {
  return Options::from_environment().devices == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) {
  *version = Options::from_environment().driver_version;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  *count = Options::from_environment().devices;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult code, const char** name) {
  *name = code == CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_UNKNOWN";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult code, const char** text) {
  *text = code == CUDA_ERROR_NO_DEVICE ? "no CUDA-capable device is detected" : "unknown error";
  return CUDA_SUCCESS;
}

}  // extern "C"
