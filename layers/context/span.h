#pragma once

#include "layers/context/recompute_cache.h"
#include "layers/context/sequence.h"

namespace weft {

// Between documents, which kernels see, and chains of documents, which cross ranks.

// How the states of `algebra` cross the ranks: as the sequence says, but to the next rank alone
// where they are rows that no span has too few of. All ranks know all spans, and decide alike.
SpanTravel travel_of(const Sequence& sequence, const SpanAlgebra& algebra);

// Summaries of documents -> of the chains: what the last document of each does.
Summary chains_of(Exec& exec, const Sequence& sequence, const Summary& documents);
// f32 [chains]: 1 where what enters the span also leaves it.
Tensor passing_chains(Exec& exec, const Sequence& sequence);
// States that enter chains -> that enter documents; documents that start here get start().
State to_documents(Exec& exec, const Sequence& sequence, const SpanAlgebra& algebra,
                   const State& chains);
// Gradients of states that enter documents -> that enter chains: zero where the document starts
// here.
State first_documents(Exec& exec, const Sequence& sequence, const State& documents);
// Gradients of states that leave chains -> that leave documents: zero for all but the last.
State from_chains(Exec& exec, const Sequence& sequence, const State& chains);

// The ring: the state that enters this rank's documents, after the ranks before have run; and back.
State ring_enter(Exec& exec, const Sequence& sequence, const SpanAlgebra& algebra);
void ring_leave(Exec& exec, const Sequence& sequence, const State& leaving);
State ring_enter_backward(Exec& exec, const Sequence& sequence, const SpanAlgebra& algebra);
void ring_leave_backward(Exec& exec, const Sequence& sequence, const State& d_entering);

}  // namespace weft
