#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/sequence/span_algebra.h"

namespace weft {

// Sequence parallelism (LASP-2): ranks hold consecutive spans of the same chains of tokens. A chain
// is a row of the batch, or a memory of a row; the state that leaves a rank enters the next one.
// Gathered or scanned (SpanExchange), each state is computed by the same operations on the same
// numbers. Inputs of the last tokens of a span (short convolutions, token shifts) go to the next
// rank alone, which needs no more where no span is shorter than they reach back.

// Summaries that forward received and backward needs.
struct GatheredSummaries {
  // By rank where all were gathered, else this rank's alone.
  std::vector<Summary> spans;  // first dimension: chains
  std::vector<Tensor> passes;  // f32 [chains], 0 where a document starts inside the span, so that
                               // nothing that enters leaves
  State entering;              // this rank's span, where only its own is known
};

// A state from every rank: an all-gather, which the constructor starts and, where `travel` has
// overlap, does not wait for.
class GatheredStates {
 public:
  GatheredStates(Exec& exec, Communicator& ranks, const State& mine, const SpanTravel& travel);
  std::vector<State> wait();  // by rank

 private:
  State like_;
  Tensor packed_, all_;
  std::unique_ptr<Pending> pending_;  // null: has arrived
};

// States sent to the next rank (by = 1) or the one before (by = -1) in one message, and those
// received from the other side.
class ShiftedStates {
 public:
  ShiftedStates(Exec& exec, Communicator& ranks, const State& mine, int by,
                const SpanTravel& travel);
  State wait();  // empty where no rank is on the other side

 private:
  State like_;
  Tensor packed_, came_;
  std::unique_ptr<Pending> pending_;
};

// A state sent to another rank. Where `travel` has overlap, it is pending until finish().
class SentState {
 public:
  SentState(Exec& exec, Communicator& ranks, const State& state, int to, const SpanTravel& travel);
  void finish() {
    if (pending_) pending_->wait();
    pending_.reset();
  }

 private:
  Tensor packed_;
  std::unique_ptr<Pending> pending_;
};

// The state that enters this rank's span: the constructor starts to send the summary, other work
// overlaps, state() waits and computes, finish() waits for what was sent. `passes`: which chains
// let an entering state through this rank's span, f32 [chains] of 0 and 1.
class PrefixExchange {
 public:
  PrefixExchange(Exec& exec, Communicator& ranks, const Summary& mine, const Tensor& passes,
                 const SpanTravel& travel);
  State state(Exec& exec, const SpanAlgebra& algebra, GatheredSummaries& known);
  void finish();

 private:
  Communicator& ranks_;
  SpanTravel travel_;
  Summary mine_;
  Tensor passes_;
  std::optional<GatheredStates> gathered_;
  std::optional<ShiftedStates> shifted_;
  std::optional<SentState> sent_;
};

// The gradient of the state that leaves this rank's span, in the same steps. `mine` is the gradient
// of the state that enters it, as far as it comes from this rank's own outputs.
class SuffixGradientExchange {
 public:
  SuffixGradientExchange(Exec& exec, Communicator& ranks, const State& mine,
                         const SpanTravel& travel);
  State gradient(Exec& exec, const SpanAlgebra& algebra, const GatheredSummaries& known);
  void finish();

 private:
  Communicator& ranks_;
  SpanTravel travel_;
  State mine_;
  std::optional<GatheredStates> gathered_;
  std::optional<ShiftedStates> shifted_;
  std::optional<SentState> sent_;
};

// Rank to rank in order, for rules without a summary: receive what enters (start() on the first
// rank), and send what leaves.
State receive_state(Exec& exec, Communicator& ranks, const State& like, int from);
void send_state(Exec& exec, Communicator& ranks, const State& state, int to);

}  // namespace weft
