#pragma once

#include <memory>

#include "parallel/communicator.h"

namespace weft {

// A reduce_scatter whose parts travel while this rank computes. The sum is formed when it is
// finished, in rank order and with the arithmetic of every communicator: the same bits as
// Communicator::reduce_scatter.
class ScatterInFlight {
 public:
  // all: [size, mine...]; read until finish(). Of those under way on one communicator each has a
  // tag of its own, the same on all ranks.
  ScatterInFlight(Exec& exec, Communicator& comm, Tensor all, int tag);

  void finish(Exec& exec);  // the sum stands in row `rank` of `all`

 private:
  Communicator& comm_;
  Tensor all_, parts_;
  std::unique_ptr<Pending> pending_;
};

}  // namespace weft
