#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/forwarding_comm.h"

namespace weft::test {

// A communicator that reports the start of non-blocking collectives and the wait for them.
class Watched final : public ForwardingComm {
 public:
  using Look = std::function<void(const std::string& operation)>;
  using ForwardingComm::ForwardingComm;

  Look begun = [](const std::string&) {};  // just started
  Look look = [](const std::string&) {};   // about to be waited for

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
};

}  // namespace weft::test
