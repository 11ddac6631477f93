#pragma once

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"

struct ncclComm;
struct CUstream_st;

namespace weft {

// A group of processes with one CUDA device each; views are in that device's memory. Calls run on a
// stream of the communicator's own and complete before they return. The order of sums is NCCL's, so
// results agree with the other communicators within rounding, not in bits.
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
  void all_gather(Exec& exec, ConstView mine, View all) override;
  void reduce_scatter(Exec& exec, ConstView all, View mine) override;
  void all_to_all_v(Exec& exec, ConstView send, std::span<const int64_t> send_rows, View recv,
                    std::span<const int64_t> recv_rows) override;
  void transfer(Exec& exec, std::span<const Transfer> together) override;
  std::unique_ptr<Pending> start(Exec& exec, std::span<const Transfer> together) override {
    transfer(exec, together);
    return std::make_unique<Done>();
  }
  HostGroup& hosts() override { return hosts_; }

 private:
  NcclComm(HostGroup& hosts, Device device)
      : hosts_(hosts),
        rank_(hosts.rank()),
        size_(hosts.size()),
        name_(hosts.name()),
        device_(device) {}
  void complete(const char* call);  // waits for the stream, and asks NCCL how it went

  HostGroup& hosts_;
  int rank_, size_;
  std::string name_;
  Device device_;
  ncclComm* comm_ = nullptr;
  CUstream_st* stream_ = nullptr;
};

}  // namespace weft
