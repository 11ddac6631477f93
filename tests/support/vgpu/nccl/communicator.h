#pragma once

#include <nccl.h>

#include <memory>
#include <string>

#include "tests/support/vgpu/host/api.h"
#include "tests/support/vgpu/nccl/shared.h"

// A communicator of this process. The handle of NCCL is its address.
struct ncclComm {
  uint32_t number;  // in this process
  int rank, size, device;
  std::string name;
  bool blocking = true;
  std::unique_ptr<vgpu::SharedCommunicator> shared;
  vgpu::Mark newest;  // group that was sent
  bool has_sent = false;
  uint32_t splits = 0;

  vgpu::Member& self() const { return shared->member(rank); }
};

namespace vgpu {

// Every function of NCCL: one at a time, errors kept as text. The body returns an ncclResult_t.
struct NcclError {
  ncclResult_t code;
  std::string text;
};
void keep_error(const std::string& text);

template <class F>
ncclResult_t nccl_api(const CallSite& site, F body) {
  ncclResult_t result = ncclSuccess;
  const cudaError_t code = api(site, IfBroken::kGoOn, [&](Runtime& r, Lock& lock) {
    try {
      result = body(r, lock);
    } catch (const NcclError& e) {
      keep_error(e.text);
      result = e.code;
    }
    return cudaSuccess;
  });
  return code == cudaSuccess ? result : ncclUnhandledCudaError;
}
#define VGPU_NCCL(...)                                              \
  return ::vgpu::nccl_api(VGPU_SITE,                                \
                          [&]([[maybe_unused]] ::vgpu::Runtime & r, \
                              [[maybe_unused]] ::vgpu::Lock & lock) -> ncclResult_t __VA_ARGS__)

// Makes this rank a member; `wait_for_all` returns once all ranks are.
ncclComm* join(Runtime& r, const std::string& path, int size, int rank, const ncclConfig_t* config,
               const std::string& otherwise_name);
void wait_for_all(Lock& lock, const ncclComm& comm);
void check_duplicates(const ncclComm& comm);

}  // namespace vgpu
