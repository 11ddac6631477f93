#include "layers/context/span.h"

#include <algorithm>

#include "core/memory/host_table.h"
#include "kernels/states/select.h"
#include "layers/context/tensor_of.h"

namespace weft {
namespace {

Shape with_first(Shape shape, size_t first) {
  shape[0] = static_cast<int64_t>(first);
  return shape;
}

// State index[i] of `from` as number i, that of `otherwise` (zero where there is none) for -1.
State picked(Exec& exec, const State& from, std::vector<int32_t> index, const State& otherwise) {
  const HostTable<int32_t> table(std::move(index));
  State to;
  for (size_t i = 0; i < from.size(); ++i) {
    to.push_back(exec.empty(with_first(from[i].shape(), table.size())));
    kernels::pick_states(exec, from[i], table.view(exec),
                         otherwise.empty() ? ConstView{} : ConstView(otherwise[i]), to.back());
  }
  return to;
}

State last_documents(Exec& exec, const Sequence& sequence, const State& documents) {
  std::vector<int32_t> last;
  for (const Chain& chain : sequence.chains) last.push_back(chain.last);
  return picked(exec, documents, std::move(last), {});
}

std::vector<int32_t> no_chains(const Sequence& sequence) {
  return std::vector<int32_t>(static_cast<size_t>(sequence.count()), -1);
}

}  // namespace

SpanTravel travel_of(const Sequence& sequence, const SpanAlgebra& algebra) {
  SpanTravel travel = sequence.travel;
  const int64_t rows = algebra.looks_back();
  const bool enough =
      std::all_of(sequence.spans.begin(), sequence.spans.end(),
                  [rows](const Sequence::Span& span) { return span.end - span.begin >= rows; });
  // Spans of memories are not known to all: there are none here then.
  if (rows > 0 && enough && !sequence.spans.empty()) travel.exchange = SpanExchange::kNeighbour;
  return travel;
}

Summary chains_of(Exec& exec, const Sequence& sequence, const Summary& documents) {
  return {last_documents(exec, sequence, documents.transition),
          last_documents(exec, sequence, documents.update), documents.weights};
}

Tensor passing_chains(Exec& exec, const Sequence& sequence) {
  std::vector<float> passes;
  for (const Chain& chain : sequence.chains) passes.push_back(chain.passes() ? 1.0f : 0.0f);
  return tensor_of(exec, std::move(passes));
}

State to_documents(Exec& exec, const Sequence& sequence, const SpanAlgebra& algebra,
                   const State& chains) {
  std::vector<int32_t> entering = no_chains(sequence);
  for (size_t c = 0; c < sequence.chains.size(); ++c) {
    const Chain& chain = sequence.chains[c];
    if (chain.continues) entering[static_cast<size_t>(chain.first)] = static_cast<int32_t>(c);
  }
  return picked(exec, chains, std::move(entering), algebra.start(exec, sequence.count()));
}

State first_documents(Exec& exec, const Sequence& sequence, const State& documents) {
  std::vector<int32_t> first;
  for (const Chain& chain : sequence.chains) first.push_back(chain.continues ? chain.first : -1);
  return picked(exec, documents, std::move(first), {});
}

State from_chains(Exec& exec, const Sequence& sequence, const State& chains) {
  std::vector<int32_t> leaving = no_chains(sequence);
  for (size_t c = 0; c < sequence.chains.size(); ++c) {
    leaving[static_cast<size_t>(sequence.chains[c].last)] = static_cast<int32_t>(c);
  }
  return picked(exec, chains, std::move(leaving), {});
}

State ring_enter(Exec& exec, const Sequence& sequence, const SpanAlgebra& algebra) {
  Communicator& ranks = *sequence.ranks;
  State chains = algebra.start(exec, static_cast<int64_t>(sequence.chains.size()));
  if (ranks.rank() > 0) chains = receive_state(exec, ranks, chains, ranks.rank() - 1);
  return to_documents(exec, sequence, algebra, chains);
}

void ring_leave(Exec& exec, const Sequence& sequence, const State& leaving) {
  Communicator& ranks = *sequence.ranks;
  if (ranks.rank() + 1 == ranks.size()) return;
  send_state(exec, ranks, last_documents(exec, sequence, leaving), ranks.rank() + 1);
}

State ring_enter_backward(Exec& exec, const Sequence& sequence, const SpanAlgebra& algebra) {
  Communicator& ranks = *sequence.ranks;
  if (ranks.rank() + 1 == ranks.size()) return {};
  const State like = algebra.start(exec, static_cast<int64_t>(sequence.chains.size()));
  return from_chains(exec, sequence, receive_state(exec, ranks, like, ranks.rank() + 1));
}

void ring_leave_backward(Exec& exec, const Sequence& sequence, const State& d_entering) {
  Communicator& ranks = *sequence.ranks;
  if (ranks.rank() == 0) return;
  send_state(exec, ranks, first_documents(exec, sequence, d_entering), ranks.rank() - 1);
}

}  // namespace weft
