#pragma once

#include <driver_types.h>

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/vgpu/host/device_process.h"
#include "tests/support/vgpu/host/fault_plan.h"
#include "tests/support/vgpu/host/host_guard.h"
#include "tests/support/vgpu/host/memory.h"
#include "tests/support/vgpu/host/options.h"
#include "tests/support/vgpu/host/report.h"
#include "tests/support/vgpu/host/streams.h"

namespace vgpu {

// Ends a call with this error and nothing else.
struct CallError {
  cudaError_t code;
};

// The one CUDA runtime of this process. Its mutex is held in every call but while that waits for
// the device.
class Runtime {
 public:
  static Runtime& get();

  std::mutex mutex;
  const Options options;
  Report report;
  FaultPlan faults;
  Streams streams;

  // Devices. One starts with the first call that needs it.
  int current_device() const;
  void set_device(int device);
  DeviceProcess& device(int index);
  bool started(int index) const { return devices_[index] != nullptr; }
  Board& board() { return host_memory_->board(); }

  // The sticky error of a device, and what made it.
  cudaError_t sticky(int device);
  // A mistake of the program: named, kept as sticky error of the current device, and the process
  // will not end with 0.
  [[noreturn]] void mistake(cudaError_t code, const std::string& text);
  void note_mistake(const std::string& text);

  // Commands.
  Stream& stream_of(CUstream_st* handle);  // of the current device
  Ticket enqueue(Stream& stream, Op op, const Bytes& body, std::vector<Ticket> waits = {});
  void wait_in_stream(Stream& stream, const Mark& mark);
  bool is_done(const Mark& mark);
  void host_wait(std::unique_lock<std::mutex>& lock, int device, const Mark& mark);
  void wait_for_device(std::unique_lock<std::mutex>& lock, int device);
  void host_knows(const Mark& mark);
  // A mistake if a stream is captured: `what` ("a wait") would have to happen now.
  void check_can_wait(const char* what);
  std::vector<Capture*> captures;  // begun and not ended

  // Memory.
  uint64_t allocate(int range, uint64_t bytes);
  void release(int range, uint64_t at);
  void release_later(Stream& stream, uint64_t at);  // in stream order
  Heap& heap(int range);
  HostGuard& guard() { return *guard_; }
  uint64_t staging();  // of kStagingBytes, in pinned memory
  static constexpr uint64_t kStagingBytes = 1 << 20;

  // Name of the running call for messages: "cudaMalloc in main".
  std::string caller() const;

  void finish(int status);  // when the process ends, with this exit code

 private:
  Runtime();
  void send(int device, Op op, const Bytes& body);
  static Bytes allocation_body(const Allocation& a, const std::string& by = "");
  Fault count_exchange(Reader& r);
  Fault count(const Stream& stream, Op op, const Bytes& body);
  void order_with_default(Stream& stream, std::vector<Ticket>& waits);
  const Allocation& allocation_at(int range, uint64_t at);  // a mistake if there is none
  void give_back(int range, uint64_t at);
  void finish_releases();
  void lend_managed();
  void give_managed_back();
  void find_leaks();
  void drain();

  struct Failure {
    cudaError_t code = cudaSuccess;
    bool requested = false;
  };
  std::unique_ptr<HostMemory> host_memory_;
  std::array<std::unique_ptr<DeviceProcess>, kMaxDevices> devices_;
  std::array<std::unique_ptr<Heap>, kRanges> heaps_;
  std::array<Failure, kMaxDevices> failures_;
  std::unique_ptr<HostGuard> guard_;
  VectorClock host_clock_;
  struct Releasing {
    Ticket ticket;
    uint64_t at;
  };
  std::vector<Releasing> releasing_;
  uint32_t allocations_ = 0;
  uint64_t staging_ = 0;
  bool managed_is_lent_ = false;
  int mistakes_ = 0;
  pid_t owner_;
};

void note_runtime();  // there is one: the end of the process will finish it

}  // namespace vgpu
