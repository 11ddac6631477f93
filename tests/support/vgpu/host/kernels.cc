#include "tests/support/vgpu/host/kernels.h"

#include <cuda_runtime_api.h>

#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tests/support/vgpu/check/where.h"

namespace vgpu {
namespace {

constexpr int kRegistersOfBlock = 65536, kRegistersOfThread = 255;

// Hardware hands out registers to warps, 256 at a time.
int registers_of(int per_thread, unsigned threads) {
  const int of_warp = (per_thread * 32 + 255) / 256 * 256;
  return of_warp * static_cast<int>((threads + 31) / 32);
}

// Reason why a device would refuse the launch; empty if it would not.
struct Refusal {
  cudaError_t code = cudaSuccess;
  std::string text;
};
Refusal refusal(const Runtime& r, const Launch& l, const HostKernel& kernel,
                const KernelResources& needs) {
  const uint64_t threads = uint64_t{l.block.x} * l.block.y * l.block.z;
  const auto invalid = [](const std::string& text) {
    return Refusal{cudaErrorInvalidConfiguration, text};
  };
  if (l.grid.x == 0 || l.grid.y == 0 || l.grid.z == 0) return invalid("a grid of zero blocks");
  if (l.grid.x > 0x7fffffffu || l.grid.y > 65535 || l.grid.z > 65535) {
    return invalid(fmt::format("a grid of {} x {} x {} blocks; at most 2147483647 x 65535 x 65535",
                               l.grid.x, l.grid.y, l.grid.z));
  }
  if (threads == 0 || threads > 1024 || l.block.x > 1024 || l.block.y > 1024 || l.block.z > 64) {
    return invalid(fmt::format("blocks of {} x {} x {} threads; at most 1024, 64 of them in z",
                               l.block.x, l.block.y, l.block.z));
  }
  const int allowed = kernel.dynamic_shared[static_cast<size_t>(r.current_device())];
  const int limit = allowed > 0 ? allowed : kSharedWithoutAsking - needs.static_shared;
  if (l.shared_bytes > static_cast<size_t>(limit)) {
    return {cudaErrorInvalidValue,
            fmt::format("{} bytes of dynamic shared memory; {} are allowed on this device{}",
                        l.shared_bytes, limit,
                        allowed > 0 ? "" : " without cudaFuncAttributeMaxDynamicSharedMemorySize")};
  }
  const int registers = registers_of(needs.registers, static_cast<unsigned>(threads));
  if (registers > kRegistersOfBlock || needs.registers > kRegistersOfThread) {
    return {cudaErrorLaunchOutOfResources,
            fmt::format("{} threads of {} registers need {}; a block has {}", threads,
                        needs.registers, registers, kRegistersOfBlock)};
  }
  return {};
}

}  // namespace

Kernels& Kernels::get() {
  static auto* kernels = new Kernels;
  return *kernels;
}

FatBinary* Kernels::add_binary(const void* wrapper) {
  const std::lock_guard lock(mutex_);
  return &binaries_.emplace_back(FatBinary::read(wrapper));
}

void Kernels::add(const void* stub, const char* name, const FatBinary* binary) {
  const std::lock_guard lock(mutex_);
  by_stub_[stub] = {name, binary, {}};
}

HostKernel* Kernels::find(const void* stub) {
  const std::lock_guard lock(mutex_);
  const auto found = by_stub_.find(stub);
  return found == by_stub_.end() ? nullptr : &found->second;
}

void Kernels::read_resources(const Options& options) {
  std::ifstream file(options.resources);
  if (!file) refuse(fmt::format("VGPU_RESOURCES={}: cannot be read", options.resources));
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    int architecture = 0;
    std::string name;
    KernelResources needs;
    if (!(words >> architecture >> name >> needs.registers >> needs.static_shared)) continue;
    if (architecture == options.architecture->number) resources_[name] = needs;
  }
}

KernelResources Kernels::resources(const Options& options, const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (options.resources.empty()) return {};
  if (!resources_read_) read_resources(options);
  resources_read_ = true;
  const auto found = resources_.find(name);
  return found == resources_.end() ? KernelResources{} : found->second;
}

cudaError_t launch(Runtime& r, const Launch& l) {
  Stream& stream = r.stream_of(l.stream);
  HostKernel* kernel = Kernels::get().find(l.stub);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  const std::string readable = kernel_name(kernel->name);
  if (!kernel->binary->runs_on(r.options.architecture->number)) {
    std::fprintf(stderr, "vgpu: %s has code for %s, none that sm_%d executes\n", readable.c_str(),
                 kernel->binary->list().c_str(), r.options.architecture->number);
    return cudaErrorNoKernelImageForDevice;
  }
  const Refusal no = refusal(r, l, *kernel, Kernels::get().resources(r.options, kernel->name));
  if (no.code != cudaSuccess) {
    r.mistake(no.code, fmt::format("launch of {}, stream {}: {}", readable, stream.slot, no.text));
  }
  const KernelParameters* p = r.device(stream.device).find_kernel(kernel->name);
  if (p == nullptr) {
    r.mistake(cudaErrorInvalidDeviceFunction,
              fmt::format("no twin of {}: its file is not in the libraries of VGPU_TWIN, it is not "
                          "launched by launch<kernel>(...), or it has no name outside its file",
                          readable));
  }
  Bytes arguments(p->bytes);
  for (size_t i = 0; i < p->sizes.size(); ++i) {
    std::memcpy(arguments.data() + p->offsets[i], l.arguments[i], p->sizes[i]);
  }
  Writer body;
  body.put(LaunchBody{p->index,
                      {l.grid.x, l.grid.y, l.grid.z},
                      {l.block.x, l.block.y, l.block.z},
                      static_cast<uint32_t>(l.shared_bytes)});
  body.put_bytes(arguments.data(), arguments.size());
  r.enqueue(stream, Op::kLaunch, body.bytes());
  return cudaSuccess;
}

}  // namespace vgpu
