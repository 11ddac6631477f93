#include "layers/recurrence/affine.h"

#include "kernels/matrix/gemm.h"
#include "kernels/rows/elementwise.h"
#include "kernels/states/decay.h"
#include "kernels/states/turn.h"
#include "layers/context/state.h"
#include "layers/context/tensor_of.h"

namespace weft {
namespace {

State decayed(Exec& exec, const Summary& span, const State& state) {
  if (span.transition.empty()) return state;
  const kernels::StateDecay decay{span.transition[0], given(span.weights)};
  State out;
  for (const Tensor& t : state) {
    out.push_back(exec.empty(t.shape()));
    kernels::decay_state(exec, decay, t, out.back());
  }
  return out;
}

// Rows of the tensors of one head, one below the other: [K, V].
struct Stack {
  int64_t heads = 0, rows = 0, width = 0;  // heads of all sequences, K, V
  explicit Stack(const State& state) {
    const Shape& s = state[0].shape();
    heads = s[0] * s[1];
    width = s.dims() > 3 ? s[3] : 1;
    for (const Tensor& t : state) rows += t.shape()[2];
  }
  Shape shape() const { return {heads, rows, width}; }

  // each(tensor as [heads, its rows * V], its place in `all` [heads, K, V])
  template <class Each>
  void each_part(const State& state, const Tensor& all, Each each) const {
    const View flat = all.reshaped({heads, rows * width});
    int64_t at = 0;
    for (const Tensor& t : state) {
      const int64_t size = t.shape()[2] * width;
      each(t.reshaped({heads, size}), flat.columns(at, size));
      at += size;
    }
  }
};

// A or A^T times the stacked rows of every head.
State multiplied(Exec& exec, const Tensor& matrices, kernels::Transpose transpose,
                 const State& state) {
  const Stack s(state);
  const Tensor a = matrices.reshaped({s.heads, s.rows, s.rows});
  State out;
  for (const Tensor& t : state) out.push_back(exec.empty(t.shape()));
  if (state.size() == 1) {
    kernels::batched_gemm(exec, a, state[0].reshaped(s.shape()), out[0].reshaped(s.shape()),
                          {.a = transpose});
    return out;
  }
  const Tensor from = exec.scratch(s.shape()), to = exec.scratch(s.shape());
  s.each_part(state, from, [&](const Tensor& t, View place) { kernels::copy(exec, t, place); });
  kernels::batched_gemm(exec, a, from, to, {.a = transpose});
  s.each_part(out, to, [&](const Tensor& t, View place) { kernels::copy(exec, place, t); });
  return out;
}

State turned(Exec& exec, const Tensor& by, kernels::Turn turn, const State& state) {
  const Tensor out = exec.empty(state[0].shape());
  kernels::turn_state(exec, by, turn, state[0], out);
  return {out};
}

}  // namespace

State transform(Exec& exec, Transition kind, const Summary& span, const State& state) {
  switch (kind) {
    case Transition::kFactor: return decayed(exec, span, state);
    case Transition::kSides: {
      const Tensor out = exec.empty(state[0].shape());
      kernels::decay_state_sides(exec, span.transition[0], span.transition[1], state[0], out);
      return {out};
    }
    case Transition::kTurn: return turned(exec, span.transition[0], kernels::Turn::kForward, state);
    default: return multiplied(exec, span.transition[0], kernels::Transpose::kNo, state);
  }
}

State transform_adjoint(Exec& exec, Transition kind, const Summary& span, const State& state) {
  if (kind == Transition::kTurn)
    return turned(exec, span.transition[0], kernels::Turn::kBack, state);
  if (kind != Transition::kDense) return transform(exec, kind, span, state);
  return multiplied(exec, span.transition[0], kernels::Transpose::kYes, state);
}

State compose(Exec& exec, Transition kind, const State& first, const State& second) {
  switch (kind) {
    case Transition::kFactor:
    case Transition::kSides: return add_states(exec, first, second);
    case Transition::kTurn: {
      const Shape& f = first[0].shape();  // a state of one column
      const Tensor column = first[0].reshaped({f[0], f[1], f[2], f[3], 1});
      return {turned(exec, second[0], kernels::Turn::kForward, {column})[0].reshaped(f)};
    }
    default: return multiplied(exec, second[0], kernels::Transpose::kNo, first);
  }
}

State add_states(Exec& exec, const State& a, const State& b) {
  State out;
  for (size_t i = 0; i < a.size(); ++i) {
    out.push_back(exec.empty(a[i].shape()));
    kernels::add(exec, a[i], b[i], out[i]);
  }
  return out;
}

Tensor summed_rows(Exec& exec, ConstView x, const Sequence& sequence, const HeadRows& of) {
  const Tensor sums = exec.empty({sequence.count(), of.heads, of.width});
  kernels::document_sums(exec, {of.heads, of.kv_heads, of.width}, sequence.documents, x, sums);
  return sums;
}

Tensor token_counts(Exec& exec, const Sequence& sequence) {
  std::vector<float> counts;
  for (size_t d = 0; d + 1 < sequence.documents.size(); ++d) {
    counts.push_back(static_cast<float>(sequence.documents[d + 1] - sequence.documents[d]));
  }
  return tensor_of(exec, std::move(counts));
}

}  // namespace weft
