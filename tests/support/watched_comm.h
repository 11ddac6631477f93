#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/communicator.h"

namespace weft::test {

// A communicator that tells when collectives are started that travel while ranks compute, and when
// they are waited for.
class Watched final : public Communicator {
 public:
  using Look = std::function<void(const std::string& operation)>;
  explicit Watched(Communicator& inner) : inner_(inner) {}

  Look begun = [](const std::string&) {};  // just started
  Look look = [](const std::string&) {};   // about to be waited for

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
  void barrier() override { inner_.barrier(); }
  std::unique_ptr<Pending> start_together(Exec& exec, const Collective& what,
                                          std::vector<Transfer> parts) override {
    auto seen = std::make_unique<Seen>();
    seen->look = look;
    seen->operation = what.name;
    seen->inner = inner_.start_together(exec, what, std::move(parts));
    begun(what.name);
    return seen;
  }

 private:
  struct Seen final : Pending {
    void wait() override {
      look(operation);
      inner->wait();
    }
    Look look;
    std::string operation;
    std::unique_ptr<Pending> inner;
  };
  Communicator& inner_;
};

}  // namespace weft::test
