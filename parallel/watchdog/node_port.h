#pragma once

#include <string>

#include "core/files/file_descriptor.h"

namespace weft {

// A port on which the kernel of this node answers for as long as the process lives, also while the
// process is halted: others tell from it whether the network between two nodes carries anything.
class NodePort {
 public:
  NodePort();
  // "10.0.0.1:40123 192.168.0.1:40123", of all addresses that other nodes may know; empty where
  // there is none.
  const std::string& addresses() const { return addresses_; }

 private:
  FileDescriptor port_;
  std::string addresses_;
};

// Whether any of the addresses answers within a second; also yes when none is given.
bool answers(const std::string& addresses);

}  // namespace weft
