#pragma once

#include <vector>

#include "tests/support/vgpu/nccl/communicator.h"

namespace vgpu {

// Calls of one thread between ncclGroupStart and ncclGroupEnd.
class Group {
 public:
  static Group& of_thread();

  void start() { ++depth_; }
  void add(Runtime& r, ncclComm* comm, cudaStream_t stream, const ExchangeCall& call);
  void end(Runtime& r, Lock& lock);
  // True inside a group: ncclGroupEnd then waits for the other members.
  bool waits_later(ncclComm* comm);

 private:
  struct Entry {
    ncclComm* comm;
    cudaStream_t stream;
    ExchangeCall call;
  };
  void send_all(Runtime& r);
  void send(Runtime& r, ncclComm* comm);

  int depth_ = 0;
  std::vector<Entry> entries_;
  std::vector<ncclComm*> joining_;
};

}  // namespace vgpu
