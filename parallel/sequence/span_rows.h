#pragma once

#include <memory>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/sequence/span_algebra.h"

namespace weft {

// Exchange::kConcat: a span leaves rows (keys and values) for the spans behind it, and sees the
// last ones before it: those of the document it continues, or as many of them as a window holds.
// Rows go from each rank to the ranks that see them, and their gradients back: one exchange each;
// only rows that some rank reads are sent.
//
// States and updates of such a rule: for each kind of row a tensor [chains, room, width] of any
// type, older rows first; then how many rows each chain has, i32 [chains]. The state before the
// first token has the counts alone.

// How many of the last rows of a rank's span another rank sees, by rank and chain. All ranks know
// where spans and documents lie, so that these need no communication.
struct SeenRows {
  using Counts = std::vector<std::vector<int64_t>>;
  Counts of_others;  // rows of rank r that this rank sees
  Counts of_mine;    // rows of this rank that rank r sees
};

// The state that enters this rank's span: the constructor starts to send the rows, other work
// overlaps, state() waits. mine: the rows that the span adds to each chain, at least those that
// some rank sees.
class RowExchange {
 public:
  RowExchange(Exec& exec, Communicator& ranks, const Summary& mine, const SeenRows& seen,
              const SpanTravel& travel);
  State state(Exec& exec, const SpanAlgebra& algebra);

 private:
  Communicator& ranks_;
  State like_;
  SeenRows::Counts counts_;
  Tensor sent_, received_;
  std::unique_ptr<Pending> pending_;  // null: has arrived
};

// The adjoint. d_entering: gradients of the rows of the state above, f32, and the counts; taken
// apart by the algebra's adjoint, they go back to the ranks that the rows came from. `gradient`:
// those of this rank's own rows, which other ranks have sent, for the last rows of each chain that
// some rank saw. Sums are formed in rank order.
class RowGradientExchange {
 public:
  RowGradientExchange(Exec& exec, Communicator& ranks, const SpanAlgebra& algebra, State d_entering,
                      const SeenRows& seen, const SpanTravel& travel);
  State gradient(Exec& exec);

 private:
  Communicator& ranks_;
  State like_;
  SeenRows::Counts counts_;
  Tensor sent_, received_;
  std::unique_ptr<Pending> pending_;
};

// Counts of rows as states have them, i32 [chains] in memory of the host: they decide shapes.
Tensor row_counts(Exec& exec, const std::vector<int64_t>& counts);
std::vector<int32_t> counts_of(Exec& exec, const State& rows);

}  // namespace weft
