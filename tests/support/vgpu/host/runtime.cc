#include "tests/support/vgpu/host/runtime.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cstdio>

#include "tests/support/vgpu/check/where.h"
#include "tests/support/vgpu/host/api.h"
#include "tests/support/vgpu/host/host_fault.h"
#include "tests/support/vgpu/wire/command.h"

namespace vgpu {

constinit thread_local CallSite current_call;
constinit thread_local cudaError_t last_error = cudaSuccess;

namespace {

constinit thread_local int current_device_of_thread = 0;

}  // namespace

// Never destroyed: the process may call CUDA until its very end.
Runtime& Runtime::get() {
  static auto* runtime = new Runtime;
  return *runtime;
}

Runtime::Runtime()
    : options(Options::from_environment()),
      faults(options.fault),
      host_memory_(std::make_unique<HostMemory>()),
      owner_(getpid()) {
  for (const int range : {kPinnedRange, kManagedRange}) {
    heaps_[range] = std::make_unique<Heap>(range_base(range), kHostCapacity, kHostCapacity, 4096);
  }
  guard_ = std::make_unique<HostGuard>(*heaps_[kPinnedRange]);
  name_host_faults(*this);
  note_runtime();
}

int Runtime::current_device() const { return current_device_of_thread; }

void Runtime::set_device(int device) {
  if (device < 0 || device >= options.devices) throw CallError{cudaErrorInvalidDevice};
  current_device_of_thread = device;
  this->device(device);  // as the real one does: a context, and its memory, from here on
}

DeviceProcess& Runtime::device(int index) {
  if (options.devices == 0) throw CallError{cudaErrorNoDevice};
  if (options.driver_version < CUDART_VERSION / 1000 * 1000) {
    throw CallError{cudaErrorInsufficientDriver};
  }
  auto& device = devices_[static_cast<size_t>(index)];
  if (device == nullptr) {
    device = std::make_unique<DeviceProcess>(index, options, *host_memory_);
    heaps_[static_cast<size_t>(index)] = std::make_unique<Heap>(
        range_base(index), DeviceProcess::address_space(options.memory_bytes), options.memory_bytes,
        kAllocationAlignment);
    ++report.devices;
    report.kernels.insert(device->readable_names().begin(), device->readable_names().end());
    for (const int range : {kPinnedRange, kManagedRange}) {
      for (const auto& [at, a] : heap(range).live()) send(index, Op::kAllocate, allocation_body(a));
    }
  }
  return *device;
}

void Runtime::send(int device, Op op, const Bytes& body) {
  this->device(device).send(packed(op, {}, Fault::kNone, {}, {}, body));
}

Heap& Runtime::heap(int range) { return *heaps_[static_cast<size_t>(range)]; }

cudaError_t Runtime::sticky(int device) {
  const auto i = static_cast<size_t>(device);
  if (failures_[i].code != cudaSuccess || devices_[i] == nullptr) return failures_[i].code;
  const DeviceState& state = board().devices[i];
  if (state.failed.load(std::memory_order_acquire) != 0) {
    failures_[i] = {static_cast<cudaError_t>(state.code), state.requested != 0};
    if (state.requested == 0) ++mistakes_;
  } else if (devices_[i]->gone()) {
    std::fprintf(stderr, "vgpu: device %d is lost: its process ended\n", device);
    failures_[i] = {cudaErrorDevicesUnavailable, true};
  }
  return failures_[i].code;
}

void Runtime::note_mistake(const std::string& text) {
  std::fprintf(stderr, "vgpu: %s\n", text.c_str());
  ++mistakes_;
}

void Runtime::mistake(cudaError_t code, const std::string& text) {
  note_mistake(fmt::format("device {}: {}\n  by {}", current_device(), text, caller()));
  Failure& failure = failures_[static_cast<size_t>(current_device())];
  if (failure.code == cudaSuccess) failure.code = code;
  throw CallError{code};
}

std::string Runtime::caller() const {
  Dl_info info{};
  const bool found = dladdr(current_call.return_address, &info) != 0;
  if (!found || info.dli_sname == nullptr) return current_call.name;
  return fmt::format("{} in {}", current_call.name, demangled(info.dli_sname));
}

}  // namespace vgpu
