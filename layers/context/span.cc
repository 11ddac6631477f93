#include "layers/context/span.h"

#include <algorithm>
#include <cstring>

#include "core/host_access.h"

namespace weft {
namespace {

int64_t size_of_one(const Tensor& t) { return t.shape()[0] == 0 ? 0 : t.elements() / t.shape()[0]; }

void copy_one(const Tensor& from, int64_t i, const Tensor& to, int64_t j) {
  const int64_t size = size_of_one(to);
  std::memcpy(host<float>(to) + j * size, host<float>(from) + i * size,
              static_cast<size_t>(size) * sizeof(float));
}

Shape with_first(Shape shape, size_t first) {
  shape[0] = static_cast<int64_t>(first);
  return shape;
}

State last_documents(Exec& exec, const Sequence& sequence, const State& documents) {
  State chains;
  for (const Tensor& t : documents) {
    chains.push_back(exec.empty(with_first(t.shape(), sequence.chains.size())));
    for (size_t c = 0; c < sequence.chains.size(); ++c) {
      copy_one(t, sequence.chains[c].last, chains.back(), static_cast<int64_t>(c));
    }
  }
  return chains;
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
  const Tensor passes = exec.empty({static_cast<int64_t>(sequence.chains.size())});
  for (size_t c = 0; c < sequence.chains.size(); ++c) {
    host<float>(passes)[c] = sequence.chains[c].passes() ? 1.0f : 0.0f;
  }
  return passes;
}

State to_documents(Exec& exec, const Sequence& sequence, const SpanAlgebra& algebra,
                   const State& chains) {
  State documents = algebra.start(exec, sequence.count());
  for (size_t c = 0; c < sequence.chains.size(); ++c) {
    const Chain& chain = sequence.chains[c];
    if (!chain.continues) continue;
    for (size_t i = 0; i < chains.size(); ++i) {
      copy_one(chains[i], static_cast<int64_t>(c), documents[i], chain.first);
    }
  }
  return documents;
}

State first_documents(Exec& exec, const Sequence& sequence, const State& documents) {
  State chains;
  for (const Tensor& t : documents) {
    chains.push_back(exec.zeros(with_first(t.shape(), sequence.chains.size())));
    for (size_t c = 0; c < sequence.chains.size(); ++c) {
      const Chain& chain = sequence.chains[c];
      if (chain.continues) copy_one(t, chain.first, chains.back(), static_cast<int64_t>(c));
    }
  }
  return chains;
}

State from_chains(Exec& exec, const Sequence& sequence, const State& chains) {
  State documents;
  for (const Tensor& t : chains) {
    documents.push_back(exec.zeros(with_first(t.shape(), static_cast<size_t>(sequence.count()))));
    for (size_t c = 0; c < sequence.chains.size(); ++c) {
      copy_one(t, static_cast<int64_t>(c), documents.back(), sequence.chains[c].last);
    }
  }
  return documents;
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
