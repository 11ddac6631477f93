#pragma once

#include "core/exec.h"
#include "parallel/communicator.h"

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

}  // namespace weft
