#include "parallel/span_scan.h"

#include <cstring>

namespace weft {
namespace {

int64_t elements_of(const State& state) {
  int64_t sum = 0;
  for (const Tensor& t : state) sum += t.elements();
  return sum;
}

void pack(const State& state, float*& to) {
  for (const Tensor& t : state) {
    std::memcpy(to, t.data<float>(), static_cast<size_t>(t.elements()) * sizeof(float));
    to += t.elements();
  }
}

State unpack(Exec& exec, const State& like, const float*& from) {
  State state;
  for (const Tensor& t : like) {
    state.push_back(exec.empty(t.shape()));
    std::memcpy(state.back().data<float>(), from,
                static_cast<size_t>(t.elements()) * sizeof(float));
    from += t.elements();
  }
  return state;
}

// One all-gather of everything in `mine`; the result by rank.
std::vector<State> gather(Exec& exec, Communicator& ranks, const State& mine) {
  const int64_t size = elements_of(mine);
  const Tensor packed = exec.scratch({size}), all = exec.scratch({ranks.size(), size});
  float* to = packed.data<float>();
  pack(mine, to);
  ranks.all_gather(exec, packed, all);
  std::vector<State> states;
  const float* from = all.data<float>();
  for (int r = 0; r < ranks.size(); ++r) states.push_back(unpack(exec, mine, from));
  return states;
}

// Sequence c of every tensor times factor[c], or the value at the start of a document for factor 0.
State pass(Exec& exec, const Tensor& factor, const State& state, const State* otherwise) {
  State out;
  for (size_t i = 0; i < state.size(); ++i) {
    const Tensor& t = state[i];
    const Tensor copy = exec.empty(t.shape());
    const int64_t chains = factor.elements(), size = chains == 0 ? 0 : t.elements() / chains;
    for (int64_t c = 0; c < chains; ++c) {
      float* to = copy.data<float>() + c * size;
      const auto bytes = static_cast<size_t>(size) * sizeof(float);
      if (factor.data<float>()[c] != 0.0f) {
        std::memcpy(to, t.data<float>() + c * size, bytes);
      } else if (otherwise != nullptr) {
        std::memcpy(to, (*otherwise)[i].data<float>() + c * size, bytes);
      } else {
        std::memset(to, 0, bytes);
      }
    }
    out.push_back(copy);
  }
  return out;
}

State sum(Exec& exec, const State& a, const State& b) {
  State out;
  for (size_t i = 0; i < a.size(); ++i) {
    out.push_back(exec.empty(a[i].shape()));
    for (int64_t e = 0; e < a[i].elements(); ++e) {
      out[i].data<float>()[e] = a[i].data<float>()[e] + b[i].data<float>()[e];
    }
  }
  return out;
}

// States entering the spans of ranks 0 .. last.
std::vector<State> prefixes(Exec& exec, const SpanAlgebra& algebra, const GatheredSpans& gathered,
                            int last) {
  const int64_t chains = gathered.passes[0].elements();
  const State start = algebra.start(exec, chains);
  std::vector<State> entering = {start};
  for (int r = 0; r < last; ++r) {
    const auto i = static_cast<size_t>(r);
    const State passing = pass(exec, gathered.passes[i], entering.back(), &start);
    entering.push_back(algebra.apply(exec, gathered.spans[i], passing));
  }
  return entering;
}

}  // namespace

GatheredSpans gather_spans(Exec& exec, Communicator& ranks, const Summary& mine,
                           const Tensor& passes) {
  State all = mine.transition;
  all.insert(all.end(), mine.update.begin(), mine.update.end());
  all.push_back(passes);
  GatheredSpans gathered;
  const auto cut = static_cast<std::ptrdiff_t>(mine.transition.size());
  for (State& rank : gather(exec, ranks, all)) {
    gathered.passes.push_back(rank.back());
    rank.pop_back();
    gathered.spans.push_back(
        {State(rank.begin(), rank.begin() + cut), State(rank.begin() + cut, rank.end())});
  }
  return gathered;
}

State entering_state(Exec& exec, int rank, const SpanAlgebra& algebra,
                     const GatheredSpans& gathered) {
  return prefixes(exec, algebra, gathered, rank).back();
}

State leaving_gradient(Exec& exec, Communicator& ranks, const SpanAlgebra& algebra,
                       const GatheredSpans& gathered, const State& mine) {
  const std::vector<State> own = gather(exec, ranks, mine);
  const std::vector<State> entering = prefixes(exec, algebra, gathered, ranks.size() - 1);
  const State start = algebra.start(exec, gathered.passes[0].elements());
  State d;  // of the state that leaves rank r
  for (const Tensor& t : mine) d.push_back(exec.zeros(t.shape()));
  for (int r = ranks.size() - 1; r > ranks.rank(); --r) {
    const auto i = static_cast<size_t>(r);
    const State passing = pass(exec, gathered.passes[i], entering[i], &start);
    const State through = algebra.apply_adjoint(exec, gathered.spans[i], passing, d);
    d = sum(exec, pass(exec, gathered.passes[i], through, nullptr), own[i]);
  }
  return d;
}

State receive_state(Exec& exec, Communicator& ranks, const State& like, int from) {
  const Tensor packed = exec.scratch({elements_of(like)});
  const Transfer transfer{Transfer::Kind::kRecv, from, packed};
  ranks.transfer(exec, {&transfer, 1});
  const float* data = packed.data<float>();
  return unpack(exec, like, data);
}

void send_state(Exec& exec, Communicator& ranks, const State& state, int to) {
  const Tensor packed = exec.scratch({elements_of(state)});
  float* data = packed.data<float>();
  pack(state, data);
  const Transfer transfer{Transfer::Kind::kSend, to, packed};
  ranks.transfer(exec, {&transfer, 1});
}

}  // namespace weft
