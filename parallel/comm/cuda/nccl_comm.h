#pragma once

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

struct ncclComm;
struct CUstream_st;

namespace weft {

// A group of processes with one CUDA device each; views are in that device's memory. Operations run
// on a stream of the communicator's own, after what exec.queue holds when they start; wait() makes
// that queue go on after them, or, where there is no queue, the host. The order of sums is NCCL's,
// so results agree with the other communicators within rounding, not in bits.
//
// Compiled and linked where there is nvcc; it has not run, for want of a GPU.
class NcclComm final : public Communicator {
 public:
  // Called by all ranks of `hosts`, each with its own device: the same group, in the same order.
  static std::unique_ptr<NcclComm> over(HostGroup& hosts, Device device);
  ~NcclComm() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view name() const override { return name_; }

  void all_reduce(Exec& exec, View inout, ReduceOp op) override;
  void all_gather(Exec& exec, ConstView mine, View all) override {
    start_all_gather(exec, mine, all)->wait();
  }
  void reduce_scatter(Exec& exec, ConstView all, View mine) override {
    start_reduce_scatter(exec, all, mine)->wait();
  }
  void all_to_all_v(Exec& exec, ConstView send, std::span<const int64_t> send_rows, View recv,
                    std::span<const int64_t> recv_rows) override {
    start_all_to_all_v(exec, send, send_rows, recv, recv_rows)->wait();
  }
  void transfer(Exec& exec, std::span<const Transfer> together) override {
    start(exec, together)->wait();
  }
  std::unique_ptr<Pending> start(Exec& exec, std::span<const Transfer> together) override;
  std::unique_ptr<Pending> start_all_gather(Exec& exec, ConstView mine, View all) override;
  std::unique_ptr<Pending> start_reduce_scatter(Exec& exec, ConstView all, View mine) override;
  std::unique_ptr<Pending> start_all_to_all_v(Exec& exec, ConstView send,
                                              std::span<const int64_t> send_rows, View recv,
                                              std::span<const int64_t> recv_rows) override;
  HostGroup& hosts() override { return hosts_; }

 private:
  NcclComm(HostGroup& hosts, Device device)
      : hosts_(hosts),
        rank_(hosts.rank()),
        size_(hosts.size()),
        name_(hosts.name()),
        device_(device) {}
  class Started;
  void follow(const Exec& exec, const char* call);  // the stream waits for the queue
  void check_errors(const char* call);              // of operations that ran

  HostGroup& hosts_;
  int rank_, size_;
  std::string name_;
  Device device_;
  ncclComm* comm_ = nullptr;
  CUstream_st* stream_ = nullptr;
};

}  // namespace weft
