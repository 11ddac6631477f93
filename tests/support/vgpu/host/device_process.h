#pragma once

#include <sys/types.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "tests/support/vgpu/host/options.h"
#include "tests/support/vgpu/wire/board.h"
#include "tests/support/vgpu/wire/message.h"

namespace vgpu {

// Memory of this process that all its devices share.
struct HostMemory {
  HostMemory();
  SharedMemory pinned, managed, board_memory;
  Board& board() const { return *static_cast<Board*>(board_memory.data()); }
};

// Parameters of a kernel, as its twin knows them.
struct KernelParameters {
  uint32_t index;  // in the device's table
  uint32_t bytes;
  std::vector<uint32_t> sizes, offsets;
};

// The process that is a virtual GPU. Started without fork, which MPI forbids; it ends when this
// process does, however that happens.
class DeviceProcess {
 public:
  DeviceProcess(int index, const Options& options, const HostMemory& host);

  void send(const Bytes& message) const;  // nothing once the device is gone
  bool gone() const;
  // Null: the twin has no such kernel.
  const KernelParameters* find_kernel(const std::string& mangled) const;
  const std::vector<std::string>& readable_names() const { return readable_names_; }
  const std::string& readable_name(uint32_t kernel) const { return readable_names_.at(kernel); }
  void discard(uint64_t offset, uint64_t bytes) { memory_.discard(offset, bytes); }

  // Addresses that device memory may have: more than its bytes, so that gaps between allocations
  // do not count.
  static uint64_t address_space(uint64_t memory_bytes) { return 2 * memory_bytes + (64 << 20); }

 private:
  void spawn(int index, const Options& options, const HostMemory& host, int socket);
  void greet(const Options& options);

  SharedMemory memory_;  // no access from this process
  int socket_ = -1;
  pid_t pid_ = -1;
  std::unordered_map<std::string, KernelParameters> kernels_;
  std::vector<std::string> readable_names_;
};

}  // namespace vgpu
