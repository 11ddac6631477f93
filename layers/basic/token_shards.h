#pragma once

#include "core/memory/exec.h"
#include "core/memory/saved.h"
#include "parallel/comm/pending_tensor.h"

namespace weft {

// Between mixers and feed-forward layers the tokens of a micro-batch are cut over the tensor ranks,
// in order and evenly (parts differ by one at most, and may be empty): norms, routers, experts and
// residual sums work on a part. A layer whose weights are cut sees all tokens and gives each rank
// a part of every sum:
//   forward   x = gather(mine),  y = scatter(partial sums)      backward: the same with gradients
// `ranks` null, or of one rank: both return what they are given.

// [tokens, width] of all ranks, in order.
Tensor gather_tokens(Exec& exec, Communicator* ranks, const Tensor& mine, int64_t tokens);

// The sum over the ranks of `all` [tokens, width] f32, for this rank's tokens.
Tensor scatter_tokens(Exec& exec, Communicator* ranks, const Tensor& all);

// As scatter_tokens, but pending: over two ranks or more.
PendingTensor start_scatter(Exec& exec, Communicator& ranks, const Tensor& all);

// The gradient of a layer's gathered input, from `backward`, which gives this rank's part of its
// sums. With overlap the work that only gradients of weights need is done while the parts travel.
template <class Backward>
Tensor scatter_gradient(Exec& exec, Communicator* ranks, Overlap overlap, SavedStack& saved,
                        Backward&& backward) {
  if (ranks == nullptr || ranks->size() == 1 || overlap == Overlap::kOff) {
    return scatter_tokens(exec, ranks, backward());
  }
  saved.hold();
  PendingTensor sums = start_scatter(exec, *ranks, backward());
  saved.run_held(exec);
  return sums.wait();
}

}  // namespace weft
