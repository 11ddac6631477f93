#include "parallel/comm/scatter_in_flight.h"

#include <algorithm>
#include <vector>

#include "core/host_access.h"
#include "parallel/comm/check_views.h"
#include "parallel/comm/reduction.h"

namespace weft {

ScatterInFlight::ScatterInFlight(Exec& exec, Communicator& comm, Tensor all, Tensor mine)
    : comm_(comm),
      all_(std::move(all)),
      mine_(std::move(mine)),
      parts_(exec.scratch(all_.shape(), all_.dtype())) {
  check_reduce_scatter(comm, all_, mine_);
  std::vector<Transfer> parts;
  for (int r = 0; r < comm.size() && mine_.elements() > 0; ++r) {
    if (r == comm.rank()) continue;
    parts.push_back({Transfer::Kind::kRecv, r, parts_.row(r)});
    parts.push_back({Transfer::Kind::kSend, r, all_.row(r)});
  }
  pending_ = comm.start_together(exec, {"reduce_scatter", signature("reduce_scatter", mine_)},
                                 std::move(parts));
}

void ScatterInFlight::finish(Exec& exec) {
  pending_->wait();
  const void* own = host_bytes(all_.row(comm_.rank()));
  const int64_t count = mine_.elements();
  constexpr int64_t kTask = 1 << 15;
  exec.threads.run((count + kTask - 1) / kTask, [&](int64_t task) {
    Reduction part{ReduceOp::kSum,
                   {},
                   {host_bytes(mine_)},
                   task * kTask,
                   std::min(count, (task + 1) * kTask),
                   0};
    for (int r = 0; r < comm_.size(); ++r) {
      part.from.push_back(r == comm_.rank() ? own : host_bytes(parts_.row(r)));
    }
    part.run(mine_.dtype());
  });
}

}  // namespace weft
