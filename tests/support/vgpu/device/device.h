#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/vgpu/check/checker.h"
#include "tests/support/vgpu/device/queues.h"
#include "tests/support/vgpu/device/twins.h"
#include "tests/support/vgpu/wire/board.h"
#include "tests/support/vgpu/wire/command.h"

namespace vgpu {

class Exchanger;

struct DeviceOptions {
  int index = 0;
  uint64_t capacity = 0;
  uint32_t order = 0;  // seed; 0: no delays, and threads in their natural order
  bool thorough = true;
  int64_t longest_delay_us = 0;
  std::vector<std::string> twins;
};

// One virtual GPU: a process of one working thread. It takes a command whose turn has come,
// executes it to its end and looks again; exchanges with other devices are moved on in between.
class Device {
 public:
  Device(const DeviceOptions& options, Board& board);
  ~Device();

  const std::vector<Kernel>& kernels() const { return twins_.kernels(); }
  // Until the host is gone.
  void serve(int socket);

  Checker& checker() { return checker_; }

 private:
  void receive(class Inbox& inbox);
  void notice(const Command& command);
  void execute(const Command& command);
  void perform(const Command& command);
  void complete(const Ticket& ticket);
  void fail(int code, bool requested, const std::string& text);
  void obey(Fault fault);

  void launch(const Command& command);
  void copy(const CopyBody& body);
  void set(const SetBody& body);
  void free_later(const AllocationBody& body);

  DeviceOptions options_;
  Board& board_;
  Twins twins_;
  Checker checker_;
  Queues queues_;
  std::unique_ptr<Exchanger> exchanger_;
  bool failed_ = false;
};

}  // namespace vgpu
