#include "parallel/sequence/span_scan.h"

#include "kernels/rows/elementwise.h"
#include "kernels/states/select.h"

namespace weft {
namespace {

int64_t elements_of(const State& state) {
  int64_t sum = 0;
  for (const Tensor& t : state) sum += t.elements();
  return sum;
}

// All tensors of a state one after the other.
Tensor packed(Exec& exec, const State& state) {
  const Tensor all = exec.scratch({elements_of(state)});
  int64_t at = 0;
  for (const Tensor& t : state) {
    kernels::copy(exec, t, all.slice(at, t.elements()));
    at += t.elements();
  }
  return all;
}

// The tensors again, in the memory of `all`.
State unpacked(const State& like, const Tensor& all) {
  State state;
  int64_t at = 0;
  for (const Tensor& t : like) {
    state.push_back(all.slice(at, t.elements()).reshaped(t.shape()));
    at += t.elements();
  }
  return state;
}

// States of the chains that pass; the others are those of `otherwise`, zero where there is none.
State pass(Exec& exec, const Tensor& passes, const State& state, const State& otherwise) {
  State out;
  for (size_t i = 0; i < state.size(); ++i) {
    out.push_back(exec.empty(state[i].shape()));
    kernels::pass_states(exec, passes, state[i],
                         otherwise.empty() ? ConstView{} : ConstView(otherwise[i]), out[i]);
  }
  return out;
}

State sum(Exec& exec, const State& a, const State& b) {
  State out;
  for (size_t i = 0; i < a.size(); ++i) {
    out.push_back(exec.empty(a[i].shape()));
    kernels::add(exec, a[i], b[i], out[i]);
  }
  return out;
}

// The state that leaves a span which `entering` enters; nothing of it passes chains in which a
// document starts.
State after(Exec& exec, const SpanAlgebra& algebra, const Summary& span, const Tensor& passes,
            const State& entering) {
  return algebra.apply(exec, span,
                       pass(exec, passes, entering, algebra.start(exec, passes.elements())));
}

// The gradient of the state that enters a span: what comes through it from behind, and its own.
State before(Exec& exec, const SpanAlgebra& algebra, const Summary& span, const Tensor& passes,
             const State& entering, const State& d_leaving, const State& own) {
  const State passing = pass(exec, passes, entering, algebra.start(exec, passes.elements()));
  const State through = algebra.apply_adjoint(exec, span, passing, d_leaving);
  return sum(exec, pass(exec, passes, through, {}), own);
}

// States entering the spans of ranks 0 .. last.
std::vector<State> prefixes(Exec& exec, const SpanAlgebra& algebra, const GatheredSummaries& known,
                            int last) {
  std::vector<State> entering = {algebra.start(exec, known.passes[0].elements())};
  for (size_t r = 0; r < static_cast<size_t>(last); ++r) {
    entering.push_back(after(exec, algebra, known.spans[r], known.passes[r], entering.back()));
  }
  return entering;
}

State zeros_like(Exec& exec, const State& like) {
  State zeros;
  for (const Tensor& t : like) zeros.push_back(exec.zeros(t.shape()));
  return zeros;
}

State all_of(const Summary& summary, const Tensor& passes) {
  State all = summary.transition;
  all.insert(all.end(), summary.update.begin(), summary.update.end());
  all.push_back(passes);
  return all;
}

}  // namespace

GatheredStates::GatheredStates(Exec& exec, Communicator& ranks, const State& mine,
                               const SpanTravel& travel)
    : like_(mine),
      packed_(packed(exec, mine)),
      all_(exec.empty({ranks.size(), packed_.elements()})) {
  if (travel.overlap) {
    pending_ = ranks.start_all_gather(exec, packed_, all_);
  } else {
    ranks.all_gather(exec, packed_, all_);
  }
}

std::vector<State> GatheredStates::wait() {
  if (pending_) pending_->wait();
  pending_.reset();
  packed_ = {};
  std::vector<State> states;
  for (int64_t r = 0; r < all_.shape()[0]; ++r) states.push_back(unpacked(like_, all_.row(r)));
  return states;
}

ShiftedStates::ShiftedStates(Exec& exec, Communicator& ranks, const State& mine, int by,
                             const SpanTravel& travel)
    : like_(mine), packed_(packed(exec, mine)) {
  const auto exists = [&](int rank) { return rank >= 0 && rank < ranks.size(); };
  const int to = ranks.rank() + by, from = ranks.rank() - by;
  std::vector<Transfer> parts;
  if (exists(to)) parts.push_back({Transfer::Kind::kSend, to, packed_});
  if (exists(from)) {
    came_ = exec.empty(packed_.shape());
    parts.push_back({Transfer::Kind::kRecv, from, came_});
  }
  pending_ = ranks.start_together(
      exec, {"halo", fmt::format("halo({} numbers, {})", packed_.elements(), by)},
      std::move(parts));
  if (travel.overlap) return;
  pending_->wait();
  pending_.reset();
}

State ShiftedStates::wait() {
  if (pending_) pending_->wait();
  pending_.reset();
  packed_ = {};
  return came_.defined() ? unpacked(like_, came_) : State{};
}

SentState::SentState(Exec& exec, Communicator& ranks, const State& state, int to,
                     const SpanTravel& travel)
    : packed_(packed(exec, state)) {
  const Transfer transfer{Transfer::Kind::kSend, to, packed_};
  if (travel.overlap) {
    pending_ = ranks.start(exec, {&transfer, 1});
  } else {
    ranks.transfer(exec, {&transfer, 1});
  }
}

PrefixExchange::PrefixExchange(Exec& exec, Communicator& ranks, const Summary& mine,
                               const Tensor& passes, const SpanTravel& travel)
    : ranks_(ranks), travel_(travel), mine_(mine), passes_(passes) {
  if (travel.exchange == SpanExchange::kGather) {
    gathered_.emplace(exec, ranks, all_of(mine, passes), travel);
  } else if (travel.exchange == SpanExchange::kNeighbour) {
    shifted_.emplace(exec, ranks, mine.update, 1, travel);
  }
}

State PrefixExchange::state(Exec& exec, const SpanAlgebra& algebra, GatheredSummaries& known) {
  if (gathered_) {
    const auto cut = static_cast<std::ptrdiff_t>(mine_.transition.size());
    for (State& rank : gathered_->wait()) {
      known.passes.push_back(rank.back());
      rank.pop_back();
      known.spans.push_back({State(rank.begin(), rank.begin() + cut),
                             State(rank.begin() + cut, rank.end()), mine_.weights});
    }
    return prefixes(exec, algebra, known, ranks_.rank()).back();
  }
  State entering = algebra.start(exec, passes_.elements());
  if (shifted_) {
    State came = shifted_->wait();
    return came.empty() ? entering : came;
  }
  if (ranks_.rank() > 0) entering = receive_state(exec, ranks_, entering, ranks_.rank() - 1);
  if (ranks_.rank() + 1 < ranks_.size()) {
    sent_.emplace(exec, ranks_, after(exec, algebra, mine_, passes_, entering), ranks_.rank() + 1,
                  travel_);
  }
  known = {{mine_}, {passes_}, entering};
  return entering;
}

void PrefixExchange::finish() {
  if (sent_) sent_->finish();
}

SuffixGradientExchange::SuffixGradientExchange(Exec& exec, Communicator& ranks, const State& mine,
                                               const SpanTravel& travel)
    : ranks_(ranks), travel_(travel), mine_(mine) {
  if (travel.exchange == SpanExchange::kGather) {
    gathered_.emplace(exec, ranks, mine, travel);
  } else if (travel.exchange == SpanExchange::kNeighbour) {
    shifted_.emplace(exec, ranks, mine, -1, travel);
  }
}

State SuffixGradientExchange::gradient(Exec& exec, const SpanAlgebra& algebra,
                                       const GatheredSummaries& known) {
  State d = zeros_like(exec, mine_);  // of the state that leaves rank r
  if (gathered_) {
    const std::vector<State> own = gathered_->wait();
    const std::vector<State> entering = prefixes(exec, algebra, known, ranks_.size() - 1);
    for (int r = ranks_.size() - 1; r > ranks_.rank(); --r) {
      const auto i = static_cast<size_t>(r);
      d = before(exec, algebra, known.spans[i], known.passes[i], entering[i], d, own[i]);
    }
    return d;
  }
  if (shifted_) {
    State came = shifted_->wait();
    return came.empty() ? d : came;
  }
  if (ranks_.rank() + 1 < ranks_.size()) d = receive_state(exec, ranks_, d, ranks_.rank() + 1);
  if (ranks_.rank() > 0) {
    sent_.emplace(exec, ranks_,
                  before(exec, algebra, known.spans[0], known.passes[0], known.entering, d, mine_),
                  ranks_.rank() - 1, travel_);
  }
  return d;
}

void SuffixGradientExchange::finish() {
  if (sent_) sent_->finish();
}

State receive_state(Exec& exec, Communicator& ranks, const State& like, int from) {
  const Tensor came = exec.empty({elements_of(like)});
  const Transfer transfer{Transfer::Kind::kRecv, from, came};
  ranks.transfer(exec, {&transfer, 1});
  return unpacked(like, came);
}

void send_state(Exec& exec, Communicator& ranks, const State& state, int to) {
  SentState(exec, ranks, state, to, {});
}

}  // namespace weft
