#pragma once

#include "core/memory/exec.h"
#include "parallel/comm/communicator.h"

namespace weft {

// Inside a layer whose channels are cut over the tensor ranks, for what needs all of them. `ranks`
// null, or of one rank: nothing happens.

// The sum over the ranks, f32, in place.
void sum_parts(Exec& exec, Communicator* ranks, const Tensor& t);

// [rows, channels of all ranks] in rank order, from as many channels of each.
Tensor gather_channels(Exec& exec, Communicator* ranks, ConstView mine);

// The sum over the ranks of `all` f32 [rows, channels of all ranks], for this rank's channels.
Tensor scatter_channels(Exec& exec, Communicator* ranks, const Tensor& all);

}  // namespace weft
