#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/support/vgpu/wire/message.h"

namespace vgpu {

struct CommandInfo {
  Ticket ticket;
  const char* what = "";  // "copy host to device"; of kernels null
  uint64_t kernel_or_bytes = 0;
};

// The commands that this device has begun, in the order it began them, and which of them are known
// to come before the one that runs: by stream order, events or waits of the host, whatever the
// time they took.
class History {
 public:
  // Makes a command the running one. `clock`: newest command of each stream that comes before it.
  void begin(const CommandInfo& command, std::span<const uint32_t> clock);

  uint32_t running() const { return running_; }
  const CommandInfo& command(uint32_t id) const { return commands_[id - 1]; }

  // True if command `id` is the running one, is known to come before it, or is 0 (none).
  bool before(uint32_t id) const {
    return id == running_ || id == last_asked_ || id == 0 || known_before(id);
  }

  // "kernel axpy(float*), stream 2 command 3"
  std::string describe(uint32_t id, const std::vector<std::string>& kernel_names) const;

 private:
  bool known_before(uint32_t id) const;

  uint32_t running_ = 0;
  std::vector<CommandInfo> commands_;
  std::vector<uint32_t> clock_;
  mutable uint32_t last_asked_ = 0;
};

}  // namespace vgpu
