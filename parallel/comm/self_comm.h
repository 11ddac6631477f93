#pragma once

#include <string>

#include "parallel/comm/communicator.h"

namespace weft {

// The group of one: what a run without MPI uses on every axis. Collectives copy at most.
class SelfComm final : public Communicator {
 public:
  explicit SelfComm(std::string_view axis = "self");

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view name() const override { return name_; }

  void all_reduce(Exec& exec, View inout, ReduceOp op) override;
  void all_gather(Exec& exec, ConstView mine, View all) override;
  void reduce_scatter(Exec& exec, ConstView all, View mine) override;
  void all_to_all_v(Exec& exec, ConstView send, std::span<const int64_t> send_rows, View recv,
                    std::span<const int64_t> recv_rows) override;
  void transfer(Exec& exec, std::span<const Transfer> together) override;  // to itself, in order
  std::unique_ptr<Pending> start(Exec& exec, std::span<const Transfer> together) override;
  std::unique_ptr<Pending> start_all_gather(Exec& exec, ConstView mine, View all) override;
  std::unique_ptr<Pending> start_reduce_scatter(Exec& exec, ConstView all, View mine) override;
  std::unique_ptr<Pending> start_all_to_all_v(Exec& exec, ConstView send,
                                              std::span<const int64_t> send_rows, View recv,
                                              std::span<const int64_t> recv_rows) override;
  HostGroup& hosts() override { return hosts_; }

 private:
  std::string name_;
  SelfHosts hosts_;
};

}  // namespace weft
