#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "core/memory/saved.h"
#include "layers/context/sequence.h"
#include "layers/context/span.h"

namespace weft {

// A sequence mixer without its weights. A span may be one token (decoding), the documents of a
// batch, or a rank's share of them: a family writes down its rule over the documents of one span,
// and forward and backward below make training, decoding and sequence parallelism of it.
//   In: inputs of the rule per token (views; the caller keeps them until backward)
//   Grad: views to write their gradients to
//   Keep: results of run that run_backward reads
// States: [documents, heads, ...] f32. An empty State means that every document starts here.
template <class In, class Grad, class Keep>
class Recurrence : public SpanAlgebra {
 public:
  using Inputs = In;
  using Gradients = Grad;

  // Work of the caller that overlaps the exchange of states between sequence ranks. Forward:
  // inputs that `run` reads and summaries do not: queries. Backward: work that needs no gradient of
  // the recurrence.
  using OverlapWork = std::function<void()>;

  // [tokens, heads * dv] in the type of v. `state`, if given, enters as before the tokens and
  // leaves as after them. Queries have their place in `in`; their numbers are computed by
  // `overlapped`.
  Tensor forward(Exec& exec, const In& in, const Sequence& sequence, State* state,
                 SavedStack& saved, const OverlapWork& overlapped = {}) const {
    CoreTimer timer(profile_forward(sequence));
    Frame f;
    if (state != nullptr) f.entering = std::move(*state);
    std::optional<PrefixExchange> exchange;
    const bool split = sequence.is_split(), ring = this->exchange() == Exchange::kRing;
    WEFT_CHECK(!split || state == nullptr, "a state cannot enter documents that {} ranks share",
               sequence.ranks->size());
    RecomputeCache::Entry* cached =
        split && sequence.memory != nullptr ? &sequence.memory->next() : nullptr;
    const bool needs_exchange = split && (cached == nullptr || !sequence.memory->replays());
    if (needs_exchange && !ring) {
      exchange.emplace(exec, *sequence.ranks,
                       chains_of(exec, sequence, summarize(exec, in, sequence)),
                       passing_chains(exec, sequence), travel_of(sequence, *this));
    }
    if (overlapped) timer.without(overlapped);
    if (needs_exchange && ring) f.entering = ring_enter(exec, sequence, *this);
    if (exchange) {
      f.entering = to_documents(exec, sequence, *this, exchange->state(exec, *this, f.known));
    }
    if (cached != nullptr && needs_exchange) *cached = {f.entering, f.known};
    if (cached != nullptr && !needs_exchange)
      f.entering = cached->entering, f.known = cached->known;
    State leaving;
    const bool sends = needs_exchange && ring;
    const bool wanted = state != nullptr || sends || sequence.records != nullptr;
    const Tensor out = run(exec, in, sequence, f.entering, wanted ? &leaving : nullptr, f.kept);
    if (sequence.records != nullptr) {
      sequence.records->push_back(
          {this, ring ? Summary{} : summarize(exec, in, sequence), f.entering, leaving});
    }
    if (exchange) exchange->finish();
    if (sends) ring_leave(exec, sequence, leaving);
    if (state != nullptr) *state = std::move(leaving);
    saved.push(std::move(f));
    return out;
  }

  // `d_state`, if given, enters as the gradient of the leaving state (empty: zero) and leaves as
  // that of the entering one. Pending gradients of weights (SavedStack::hold) overlap the exchange.
  void backward(Exec& exec, const In& in, const Sequence& sequence, ConstView d_out, State* d_state,
                const Grad& gradients, SavedStack& saved,
                const OverlapWork& overlapped = {}) const {
    CoreTimer timer(is_core() && sequence.profile != nullptr ? &sequence.profile->backward
                                                             : nullptr);
    const Frame f = saved.template pop<Frame>();
    State d_leaving, d_entering;
    std::optional<SuffixGradientExchange> exchange;
    if (d_state != nullptr) d_leaving = std::move(*d_state);
    const bool split = sequence.is_split(), ring = this->exchange() == Exchange::kRing;
    WEFT_CHECK(!split || d_state == nullptr,
               "a state's gradient cannot enter documents that {} ranks share",
               sequence.ranks->size());
    if (split) saved.hold();
    if (split && !ring) {
      exchange.emplace(
          exec, *sequence.ranks,
          first_documents(exec, sequence,
                          state_gradient(exec, in, sequence, f.kept, f.entering, d_out)),
          travel_of(sequence, *this));
    }
    if (overlapped) timer.without(overlapped);
    if (split) saved.run_held(exec);
    if (split && ring) d_leaving = ring_enter_backward(exec, sequence, *this);
    if (exchange) {
      d_leaving = from_chains(exec, sequence, exchange->gradient(exec, *this, f.known));
    }
    const bool sends = split && ring;
    run_backward(exec, in, sequence, f.kept, f.entering,
                 {d_out, d_leaving, d_state != nullptr || sends ? &d_entering : nullptr},
                 gradients);
    if (exchange) exchange->finish();
    if (sends) ring_leave_backward(exec, sequence, d_entering);
    if (d_state != nullptr) *d_state = std::move(d_entering);
  }

  // Counts as the mixer's core when its time is taken.
  virtual bool is_core() const { return true; }
  virtual double flops_per_token() const = 0;  // forward, multiply and add counted apart

  struct Cotangents {
    ConstView d_out;
    const State& d_leaving;  // empty: zero
    State* d_entering;       // null: not wanted
  };
  // The rule itself, over the documents of this span, each from its own entering state. `leaving`
  // is null if it is not wanted.
  virtual Tensor run(Exec& exec, const In& in, const Sequence& sequence, const State& entering,
                     State* leaving, Keep& keep) const = 0;
  virtual void run_backward(Exec& exec, const In& in, const Sequence& sequence, const Keep& keep,
                            const State& entering, const Cotangents& d,
                            const Grad& gradients) const = 0;

  // For Exchange::kPrefix: how each document here changes a state that enters it, and the gradient
  // of the entering states that comes from this span's outputs alone.
  virtual Summary summarize(Exec& exec, const In& in, const Sequence& sequence) const = 0;
  virtual State state_gradient(Exec& exec, const In& in, const Sequence& sequence, const Keep& keep,
                               const State& entering, ConstView d_out) const = 0;

 private:
  // Where to add the time of this forward pass; null: nowhere.
  double* profile_forward(const Sequence& sequence) const {
    if (!is_core() || sequence.profile == nullptr) return nullptr;
    sequence.profile->programs.emplace(this->program());
    sequence.profile->flops += flops_per_token() * static_cast<double>(sequence.tokens());
    return &sequence.profile->forward;
  }

  struct Frame {
    Keep kept;
    State entering;
    GatheredSummaries known;
  };
};

}  // namespace weft
