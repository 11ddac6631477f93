#pragma once

#include <atomic>
#include <cstdint>

#include "tests/support/vgpu/wire/layout.h"

// The page that a host process shares with its device processes: progress and errors.
namespace vgpu {

struct DeviceState {
  std::atomic<uint32_t> failed;  // set last, after the fields below
  int32_t code;                  // cudaError_t
  uint32_t requested;            // by VGPU_FAULT: not a mistake of the program
  std::atomic<uint32_t> noted;   // mistakes that end nothing by themselves
};

struct Board {
  // Number of the newest command of each stream that has completed.
  std::atomic<uint32_t> done[kMaxStreams];
  std::atomic<uint32_t> progress;  // futex: changes with every completion and failure
  std::atomic<uint32_t> waiters;
  std::atomic<uint64_t> stamps[kMaxTimedEvents];  // nanoseconds
  DeviceState devices[kMaxDevices];
};

// Memory that this process shares with others by file descriptor.
class SharedMemory {
 public:
  enum class Access { kNone, kReadWrite };
  // A new one; close-on-exec.
  SharedMemory(const char* name, uint64_t bytes, uint64_t address, Access access);
  // That of a descriptor.
  SharedMemory(int fd, uint64_t bytes, uint64_t address, Access access);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int fd() const { return fd_; }
  void* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  // Gives the pages of a range back; they read as zeros afterwards.
  void discard(uint64_t offset, uint64_t bytes);

 private:
  void map(uint64_t address, Access access);

  int fd_;
  uint64_t bytes_;
  void* data_ = nullptr;  // stays mapped for the life of the process
};

// Waits until *word differs from `seen`, for at most `microseconds`.
void wait_for_change(const std::atomic<uint32_t>& word, uint32_t seen, int64_t microseconds);
void wake_waiters(std::atomic<uint32_t>& word);

}  // namespace vgpu
