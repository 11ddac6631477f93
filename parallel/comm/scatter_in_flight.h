#pragma once

#include <memory>

#include "parallel/comm/communicator.h"

namespace weft {

// A reduce_scatter whose parts travel while this rank computes. The sum is formed when it is
// finished, in rank order and with the arithmetic of every communicator: the same bits as
// Communicator::reduce_scatter.
class ScatterInFlight {
 public:
  // all: [size, mine...], read until finish(), which writes `mine`; that may be this rank's row of
  // it.
  ScatterInFlight(Exec& exec, Communicator& comm, Tensor all, Tensor mine);

  void finish(Exec& exec);

 private:
  Communicator& comm_;
  Tensor all_, mine_, parts_;
  std::unique_ptr<Pending> pending_;
};

}  // namespace weft
