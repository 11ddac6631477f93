#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.h"

namespace weft::test {

// A communicator that forwards all calls to another one; base of classes that observe some calls.
class ForwardingComm : public Communicator {
 public:
  explicit ForwardingComm(Communicator& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string_view name() const override { return inner_.name(); }
  void all_reduce(Exec& exec, View inout, ReduceOp op) override {
    inner_.all_reduce(exec, inout, op);
  }
  void all_gather(Exec& exec, ConstView mine, View all) override {
    inner_.all_gather(exec, mine, all);
  }
  void reduce_scatter(Exec& exec, ConstView all, View mine) override {
    inner_.reduce_scatter(exec, all, mine);
  }
  void all_to_all_v(Exec& exec, ConstView send, std::span<const int64_t> send_rows, View recv,
                    std::span<const int64_t> recv_rows) override {
    inner_.all_to_all_v(exec, send, send_rows, recv, recv_rows);
  }
  void transfer(Exec& exec, std::span<const Transfer> together) override {
    inner_.transfer(exec, together);
  }
  std::unique_ptr<Pending> start(Exec& exec, std::span<const Transfer> together) override {
    return inner_.start(exec, together);
  }
  std::unique_ptr<Pending> start_together(Exec& exec, const Collective& what,
                                          std::vector<Transfer> parts) override {
    return inner_.start_together(exec, what, std::move(parts));
  }
  HostGroup& hosts() override { return inner_.hosts(); }

 protected:
  Communicator& inner_;
};

}  // namespace weft::test
