#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "layers/context/build.h"
#include "layers/recurrence/recurrence.h"

namespace weft {

// Rows of one pass through a core, one per token: q, k and v by head, and whatever else the
// recurrence reads (log decays, write strengths, phases) in its own order, empty where it has none.
struct CoreInputs {
  View q, k, v;
  std::vector<ConstView> gates;
};
struct CoreGradients {  // overwritten
  View q, k, v;
  std::vector<View> gates;  // f32
};

// The heart of a linear mixer: a recurrence, with the map of queries and keys that belongs to it.
// Gates that the widest recurrence reads.
inline constexpr size_t kMostGates = 3;

class LinearCore {
 public:
  virtual ~LinearCore() = default;

  // Overlapped with the exchange of states between sequence ranks.
  using OverlapWork = std::function<void()>;

  // [tokens, heads * dv]. Queries need not be computed before `overlapped` has run. A core may
  // change q and k in place; backward gets them as forward left them.
  virtual Tensor forward(Exec& exec, const CoreInputs& in, const Sequence& sequence, State* state,
                         SavedStack& saved, const OverlapWork& overlapped) const = 0;
  virtual void backward(Exec& exec, const CoreInputs& in, const Sequence& sequence,
                        const Tensor& d_out, State* d_state, const CoreGradients& gradients,
                        SavedStack& saved, const OverlapWork& overlapped) const = 0;
  // See Mixer::finish_gradients.
  virtual void finish_gradients(Exec&) const {}
  virtual double flops_per_token() const = 0;
};

// Makes a core once its weights, if it has any, may be declared.
using CoreMaker = std::function<std::unique_ptr<LinearCore>(const Build&)>;

// A recurrence whose inputs and gradients are {q, k, v, then `count` gates}.
template <class Recurrence, size_t count>
class RecurrenceCore final : public LinearCore {
 public:
  explicit RecurrenceCore(const typename Recurrence::Options& options) : recurrence_(options) {}

  Tensor forward(Exec& exec, const CoreInputs& in, const Sequence& sequence, State* state,
                 SavedStack& saved, const OverlapWork& overlapped) const override {
    return recurrence_.forward(exec, inputs(in, kIndices), sequence, state, saved, overlapped);
  }
  void backward(Exec& exec, const CoreInputs& in, const Sequence& sequence, const Tensor& d_out,
                State* d_state, const CoreGradients& gradients, SavedStack& saved,
                const OverlapWork& overlapped) const override {
    recurrence_.backward(exec, inputs(in, kIndices), sequence, d_out, d_state,
                         outputs(gradients, kIndices), saved, overlapped);
  }
  double flops_per_token() const override { return recurrence_.flops_per_token(); }

 private:
  static constexpr auto kIndices = std::make_index_sequence<count>{};
  template <size_t... i>
  static typename Recurrence::Inputs inputs(const CoreInputs& in, std::index_sequence<i...>) {
    return {in.q, in.k, in.v, in.gates.at(i)...};
  }
  template <size_t... i>
  static typename Recurrence::Gradients outputs(const CoreGradients& g, std::index_sequence<i...>) {
    return {g.q, g.k, g.v, g.gates.at(i)...};
  }
  Recurrence recurrence_;
};

template <class Recurrence, size_t count>
CoreMaker core_of(const typename Recurrence::Options& options) {
  return [options](const Build&) {
    return std::make_unique<RecurrenceCore<Recurrence, count>>(options);
  };
}

// Queries and keys of length one, per head, before the core reads them. Rows in the type of the
// projections are changed in place. Gradients in f32 where most of them cancels along q and k.
struct UnitLength {
  int64_t heads = 0;
  DType rows, gradients;
};
CoreMaker with_unit_length(const UnitLength& options, CoreMaker core);

}  // namespace weft
