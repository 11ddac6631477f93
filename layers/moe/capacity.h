#pragma once

#include "layers/context/feed_forward.h"

namespace weft {

// How many pairs an expert takes of a micro-batch, and which.
struct Capacity {
  int64_t pairs;
  kernels::Keep keep;
};

// This rank's pairs that stay when no expert takes more than its capacity of all pairs of the
// micro-batch. Which those are does not depend on the ranks: where others hold tokens of it
// (`context.token_ranks`), all choices are gathered and every rank takes the same decision. Tokens
// stand in the order of sequences (context.row_tokens), then of ranks, then in their own.
// Collective.
kernels::ExpertOrder within_capacity(Exec& exec, const Capacity& capacity, const Routing& routing,
                                     int64_t experts, const StepContext& context);

}  // namespace weft
