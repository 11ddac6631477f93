#include "parallel/scatter_in_flight.h"

#include <algorithm>
#include <vector>

#include "parallel/check_views.h"
#include "parallel/reduction.h"

namespace weft {

ScatterInFlight::ScatterInFlight(Exec& exec, Communicator& comm, Tensor all, int tag)
    : comm_(comm), all_(std::move(all)), parts_(exec.scratch(all_.shape(), all_.dtype())) {
  check_reduce_scatter(comm, all_, all_.row(comm.rank()));
  std::vector<Transfer> together;
  for (int r = 0; r < comm.size(); ++r) {
    if (r == comm.rank()) continue;
    together.push_back({Transfer::Kind::kRecv, r, parts_.row(r), tag});
    together.push_back({Transfer::Kind::kSend, r, all_.row(r), tag});
  }
  pending_ = comm.start(exec, together);
}

void ScatterInFlight::finish(Exec& exec) {
  pending_->wait();
  const Tensor mine = all_.row(comm_.rank());
  const int64_t count = mine.elements();
  constexpr int64_t kTask = 1 << 15;
  exec.threads.run((count + kTask - 1) / kTask, [&](int64_t task) {
    Reduction part{
        ReduceOp::kSum, {}, {mine.raw()}, task * kTask, std::min(count, (task + 1) * kTask), 0};
    for (int r = 0; r < comm_.size(); ++r) {
      part.from.push_back(r == comm_.rank() ? mine.raw() : parts_.row(r).raw());
    }
    part.run(mine.dtype());
  });
}

}  // namespace weft
