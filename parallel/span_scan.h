#pragma once

#include <vector>

#include "parallel/communicator.h"
#include "parallel/span_algebra.h"

namespace weft {

// Sequence parallelism (LASP-2): ranks hold consecutive spans of the same chains of tokens. A chain
// is a row of the batch, or a memory of a row; the state that leaves a rank enters the next one.

// What the ranks know of each other's spans after one all-gather; kept from forward to backward.
struct GatheredSpans {
  std::vector<Summary> spans;  // by rank; first dimension: chains
  std::vector<Tensor> passes;  // by rank: f32 [chains], 0 where a document starts inside the span,
                               // so that nothing that enters leaves
};

// Which chains let an entering state through this rank's span, f32 [chains] of 0 and 1.
GatheredSpans gather_spans(Exec& exec, Communicator& ranks, const Summary& mine,
                           const Tensor& passes);

// The state that enters this rank's span.
State entering_state(Exec& exec, int rank, const SpanAlgebra& algebra,
                     const GatheredSpans& gathered);

// The gradient of the state that leaves this rank's span. `mine` is the gradient of the state that
// enters it, as far as it comes from this rank's own outputs.
State leaving_gradient(Exec& exec, Communicator& ranks, const SpanAlgebra& algebra,
                       const GatheredSpans& gathered, const State& mine);

// Rank to rank in order, for rules without a summary: receive what enters (start() on the first
// rank), and send what leaves.
State receive_state(Exec& exec, Communicator& ranks, const State& like, int from);
void send_state(Exec& exec, Communicator& ranks, const State& state, int to);

}  // namespace weft
