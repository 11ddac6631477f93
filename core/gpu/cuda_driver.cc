#include "core/gpu/cuda_driver.h"

#include <dlfcn.h>

#include <fmt/format.h>

namespace weft {
namespace {

// The driver's name for an error: "CUDA_ERROR_NO_DEVICE (100)".
std::string error_text(void* library, int code) {
  const auto name_of =
      reinterpret_cast<int (*)(int, const char**)>(dlsym(library, "cuGetErrorName"));
  const char* name = nullptr;
  if (name_of == nullptr || name_of(code, &name) != 0 || name == nullptr) name = "error";
  return fmt::format("{} ({})", name, code);
}

}  // namespace

CudaDriver find_cuda_driver() {
  CudaDriver found;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    found.why_not = "no NVIDIA driver is installed (libcuda.so.1 is not here)";
    return found;
  }
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  const auto version = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDriverGetVersion"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
  if (init == nullptr || version == nullptr || count == nullptr) {
    found.why_not = "libcuda.so.1 is not a CUDA driver";
  } else if (const int code = init(0); code != 0) {
    found.why_not = fmt::format("the NVIDIA driver does not start: {}", error_text(library, code));
  } else if (version(&found.version) != 0 || count(&found.devices) != 0 || found.devices == 0) {
    found.why_not = "the NVIDIA driver sees no GPU";
  }
  return found;  // the library stays loaded: unloading a driver may crash
}

}  // namespace weft
