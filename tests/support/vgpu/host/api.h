#pragma once

#include <mutex>

#include "tests/support/vgpu/host/runtime.h"

// Wrapper of every runtime function: takes the lock, returns sticky errors first, keeps the last
// error.
namespace vgpu {

// The call that this thread is in.
struct CallSite {
  const char* name = "";
  const void* return_address = nullptr;
};
extern constinit thread_local CallSite current_call;
extern constinit thread_local cudaError_t last_error;

using Lock = std::unique_lock<std::mutex>;

enum class IfBroken { kFail, kGoOn };  // once the device has a sticky error

template <class F>
cudaError_t api(const CallSite& site, IfBroken if_broken, F body) {
  Runtime& r = Runtime::get();
  Lock lock(r.mutex);
  current_call = site;
  cudaError_t code = if_broken == IfBroken::kFail ? r.sticky(r.current_device()) : cudaSuccess;
  if (code == cudaSuccess) {
    try {
      code = body(r, lock);
    } catch (const CallError& e) {
      code = e.code;
    }
  }
  if (code != cudaSuccess && code != cudaErrorNotReady) last_error = code;
  return code;
}

#define VGPU_SITE (::vgpu::CallSite{__func__, __builtin_return_address(0)})
// Functions of the runtime: body is given Runtime& r and Lock& lock.
#define VGPU_API(...)                                          \
  return ::vgpu::api(VGPU_SITE, ::vgpu::IfBroken::kFail,       \
                     [&]([[maybe_unused]] ::vgpu::Runtime & r, \
                         [[maybe_unused]] ::vgpu::Lock & lock) -> cudaError_t __VA_ARGS__)
#define VGPU_API_ALWAYS(...)                                   \
  return ::vgpu::api(VGPU_SITE, ::vgpu::IfBroken::kGoOn,       \
                     [&]([[maybe_unused]] ::vgpu::Runtime & r, \
                         [[maybe_unused]] ::vgpu::Lock & lock) -> cudaError_t __VA_ARGS__)

}  // namespace vgpu
