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
//   In: what the rule reads per token (views; the caller keeps them until backward)
//   Grad: views to write their gradients to
//   Keep: what run leaves for run_backward
// States: [documents, heads, ...] f32. An empty State means that every document starts here.
template <class In, class Grad, class Keep>
class Recurrence : public SpanAlgebra {
 public:
  using Inputs = In;
  using Gradients = Grad;

  // Work of the caller, done while states travel between sequence ranks. Forward: what summaries do
  // not depend on, and `run` may: the queries. Backward: what needs no gradient of the recurrence.
  using Meanwhile = std::function<void()>;

  // [tokens, heads * dv] in the type of v. `state`, where given, enters as before the tokens and
  // leaves as after them. Queries have their place in `in`, but no numbers before `meanwhile` is
  // done.
  Tensor forward(Exec& exec, const In& in, const Sequence& sequence, State* state,
                 SavedStack& saved, const Meanwhile& meanwhile = {}) const {
    CoreTimer timer(is_core() && sequence.profile != nullptr ? &sequence.profile->forward
                                                             : nullptr);
    if (is_core() && sequence.profile != nullptr) {
      sequence.profile->programs.emplace(this->program());
      sequence.profile->flops += flops_per_token() * static_cast<double>(sequence.tokens());
    }
    Frame f;
    std::optional<Entrance> entrance;
    const bool split = sequence.is_split(), ring = exchange() == Exchange::kRing;
    SpanMemory::Entry* told =
        split && sequence.memory != nullptr ? &sequence.memory->next() : nullptr;
    const bool asks = split && (told == nullptr || !sequence.memory->replays());
    if (state != nullptr) f.entering = std::move(*state);
    WEFT_CHECK(!split || state == nullptr, "a state cannot enter documents that {} ranks share",
               sequence.ranks->size());
    if (asks && !ring) {
      entrance.emplace(exec, *sequence.ranks,
                       chains_of(exec, sequence, summarize(exec, in, sequence)),
                       passing_chains(exec, sequence), travel_of(sequence, *this));
    }
    if (meanwhile) timer.without(meanwhile);
    if (asks && ring) f.entering = ring_enter(exec, sequence, *this);
    if (entrance) {
      f.entering = to_documents(exec, sequence, *this, entrance->state(exec, *this, f.known));
    }
    if (told != nullptr && asks) *told = {f.entering, f.known};
    if (told != nullptr && !asks) f.entering = told->entering, f.known = told->known;
    State leaving;
    const bool sends = asks && ring;
    const bool wanted = state != nullptr || sends || sequence.records != nullptr;
    const Tensor out = run(exec, in, sequence, f.entering, wanted ? &leaving : nullptr, f.kept);
    if (sequence.records != nullptr) {
      sequence.records->push_back(
          {this, ring ? Summary{} : summarize(exec, in, sequence), f.entering, leaving});
    }
    if (entrance) entrance->finish();
    if (sends) ring_leave(exec, sequence, leaving);
    if (state != nullptr) *state = std::move(leaving);
    saved.push(std::move(f));
    return out;
  }

  // `d_state`, where given, enters as the gradient of the leaving state (empty: zero) and leaves as
  // that of the entering one. Gradients of weights that wait (SavedStack::hold) are computed while
  // the states' travel.
  void backward(Exec& exec, const In& in, const Sequence& sequence, ConstView d_out, State* d_state,
                const Grad& gradients, SavedStack& saved, const Meanwhile& meanwhile = {}) const {
    CoreTimer timer(is_core() && sequence.profile != nullptr ? &sequence.profile->backward
                                                             : nullptr);
    const Frame f = saved.template pop<Frame>();
    State d_leaving, d_entering;
    std::optional<Departure> departure;
    if (d_state != nullptr) d_leaving = std::move(*d_state);
    const bool split = sequence.is_split(), ring = exchange() == Exchange::kRing;
    WEFT_CHECK(!split || d_state == nullptr,
               "a state's gradient cannot enter documents that {} ranks share",
               sequence.ranks->size());
    if (split) saved.hold();
    if (split && !ring) {
      departure.emplace(
          exec, *sequence.ranks,
          first_documents(exec, sequence,
                          state_gradient(exec, in, sequence, f.kept, f.entering, d_out)),
          travel_of(sequence, *this));
    }
    if (meanwhile) timer.without(meanwhile);
    if (split) saved.run_held(exec);
    if (split && ring) d_leaving = ring_enter_backward(exec, sequence, *this);
    if (departure) {
      d_leaving = from_chains(exec, sequence, departure->gradient(exec, *this, f.known));
    }
    const bool sends = split && ring;
    run_backward(exec, in, sequence, f.kept, f.entering,
                 {d_out, d_leaving, d_state != nullptr || sends ? &d_entering : nullptr},
                 gradients);
    if (departure) departure->finish();
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
  // null: not wanted.
  virtual Tensor run(Exec& exec, const In& in, const Sequence& sequence, const State& entering,
                     State* leaving, Keep& keep) const = 0;
  virtual void run_backward(Exec& exec, const In& in, const Sequence& sequence, const Keep& keep,
                            const State& entering, const Cotangents& d,
                            const Grad& gradients) const = 0;

  // For Exchange::kPrefix: what each document here does to a state that enters it, and the gradient
  // of the entering states that comes from this span's outputs alone.
  virtual Summary summarize(Exec& exec, const In& in, const Sequence& sequence) const = 0;
  virtual State state_gradient(Exec& exec, const In& in, const Sequence& sequence, const Keep& keep,
                               const State& entering, ConstView d_out) const = 0;

 private:
  struct Frame {
    Keep kept;
    State entering;
    KnownSpans known;  // of sequence ranks
  };
};

}  // namespace weft
