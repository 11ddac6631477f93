#pragma once

#include <string_view>
#include <vector>

#include "core/memory/exec.h"

namespace weft {

// The tokens before a span as it sees them: f32 tensors whose first dimension counts independent
// sequences (documents, or the chains of documents that cross ranks). No tensors: nothing came
// before.
using State = std::vector<Tensor>;

// How a span of tokens changes any state that enters it.
struct Summary {
  State transition;  // how much of the entering state is left; empty where all of it is
  State update;      // the state that leaves when nothing enters; shaped as a state
  // Weights that the transition is made of as well: the same for all spans of a rule, never sent.
  State weights = {};
};

enum class Exchange : uint8_t {
  kPrefix,  // a summary of fixed size exists: one all-gather forward, one backward
  kConcat,  // a span adds rows: they go to the ranks behind that see them, their gradients back
  kRing,    // none exists (a state enters a nonlinear rule): the state goes from rank to rank
};

// How the states of rules with a summary cross ranks; the bits are the same.
enum class SpanExchange : uint8_t {
  kGather,     // all ranks learn all summaries, and each folds what it needs: LASP-2
  kScan,       // the running state goes from rank to rank, each applies its own summary to it
  kNeighbour,  // each tells the next: where a state is rows that the span before has all of
};
struct SpanTravel {
  SpanExchange exchange = SpanExchange::kGather;
  bool overlap = false;  // work that does not need the state is done while it travels
};

// The half of a recurrence that sequence parallelism needs. Laws, checked for every mixer:
//   apply(summarize(x), s) is the state that leaves x when s enters
//   apply(combine(a, b), s) == apply(b, apply(a, s)),  combine is associative
//   apply_adjoint(a, s, .) is the transpose of the derivative of apply(a, .) at s
class SpanAlgebra {
 public:
  virtual ~SpanAlgebra() = default;
  // The kernel that does the work, for benchmarks: "scalar_scan".
  virtual std::string_view program() const { return "unnamed"; }
  virtual Exchange exchange() const { return Exchange::kPrefix; }
  // The state is the inputs of so many tokens before; 0: all tokens before have a part in it.
  virtual int64_t looks_back() const { return 0; }
  // The state of `sequences` sequences before their first token.
  virtual State start(Exec& exec, int64_t sequences) const = 0;
  virtual Summary combine(Exec& exec, const Summary& first, const Summary& second) const = 0;
  virtual State apply(Exec& exec, const Summary& span, const State& entering) const = 0;
  virtual State apply_adjoint(Exec& exec, const Summary& span, const State& entering,
                              const State& d_leaving) const = 0;
};

}  // namespace weft
