#pragma once

#include <driver_types.h>

#include <array>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tests/support/vgpu/host/fat_binary.h"
#include "tests/support/vgpu/host/runtime.h"

namespace vgpu {

// A kernel as nvcc's constructors register it.
struct HostKernel {
  std::string name;  // mangled
  const FatBinary* binary = nullptr;
  std::array<int, kMaxDevices> dynamic_shared{};  // limit set by cudaFuncSetAttribute; 0: 48 KB
};

// Resources of a kernel on one architecture, as ptxas reports them. The file VGPU_RESOURCES has
// lines of architecture, mangled name, registers, bytes of static shared memory.
struct KernelResources {
  int registers = 0, static_shared = 0;
};

// Registration happens while libraries are loaded, before the runtime is wanted.
class Kernels {
 public:
  static Kernels& get();

  FatBinary* add_binary(const void* wrapper);
  void add(const void* stub, const char* name, const FatBinary* binary);
  HostKernel* find(const void* stub);
  KernelResources resources(const Options& options, const std::string& name);

 private:
  void read_resources(const Options& options);

  std::mutex mutex_;
  std::list<FatBinary> binaries_;
  std::unordered_map<const void*, HostKernel> by_stub_;
  std::map<std::string, KernelResources> resources_;  // of this architecture
  bool resources_read_ = false;
};

struct Launch {
  const void* stub;
  dim3 grid, block;
  size_t shared_bytes;
  CUstream_st* stream;
  void** arguments;
};
// Checks limits, packs parameters and enqueues.
cudaError_t launch(Runtime& r, const Launch& launch);

inline constexpr int kSharedWithoutAsking = 48 << 10;

}  // namespace vgpu
