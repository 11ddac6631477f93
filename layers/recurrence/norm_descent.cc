#include "layers/recurrence/norm_descent.h"

#include <algorithm>

#include "kernels/rows/elementwise.h"
#include "layers/context/state.h"
#include "layers/recurrence/affine.h"

namespace weft {
namespace {

template <class T>
T no_summary() {
  throw Error(
      "descent with a norm inside its loss is not affine in its state: a span of it has no "
      "summary; ranks hand the state from one to the next");
}

template <class States>
States states_of(const State& state) {
  States out;
  if (state.size() > 1) out.m = state[0], out.n = state[1];
  if (state.size() > 3) out.anchor_m = state[2], out.anchor_n = state[3];
  return out;
}

void repeat(Exec& exec, const Tensor* from, const Tensor& to) {
  if (from == nullptr) return;
  for (int64_t n = 0; n < to.shape()[0]; ++n) kernels::copy(exec, *from, to.row(n));
}

}  // namespace

State NormDescentRecurrence::zeros(Exec& exec, int64_t sequences) const {
  const Options& o = options_;
  State state;
  for (int pair = 0; pair < (o.mini_batch > 1 ? 2 : 1); ++pair) {
    state.push_back(exec.zeros({sequences, o.heads, o.width, o.width}));
    state.push_back(exec.zeros({sequences, o.heads, o.width}));
  }
  return state;
}

State NormDescentRecurrence::start(Exec& exec, int64_t sequences) const {
  State state = zeros(exec, sequences);
  for (size_t i = 0; i < state.size(); ++i) {
    repeat(exec, i % 2 == 0 ? options_.start_m : options_.start_n, state[i]);
  }
  return state;
}

kernels::NormDescentScan NormDescentRecurrence::scan(const NormDescentInputs& in,
                                                     const Sequence& sequence,
                                                     const std::vector<int32_t>& before) const {
  return {.q = in.q,
          .k = in.k,
          .v = in.v,
          .eta = in.eta,
          .w = in.w,
          .c = in.c,
          .documents = sequence.documents,
          .before = before,
          .heads = options_.heads,
          .width = options_.width,
          .mini_batch = options_.mini_batch,
          .scale = options_.scale};
}

Tensor NormDescentRecurrence::run(Exec& exec, const NormDescentInputs& in, const Sequence& sequence,
                                  const State& entering, State* leaving,
                                  NormDescentKept& keep) const {
  const Tensor out = exec.empty({sequence.tokens(), options_.heads * options_.width});
  const State from = entering.empty() ? start(exec, sequence.count()) : entering;
  if (leaving != nullptr) *leaving = zeros(exec, sequence.count());
  const std::vector<int32_t> before = tokens_before(sequence);
  const kernels::NormDescentScan rule = scan(in, sequence, before);
  if (sequence.chunk_states == ChunkStates::kKept) {
    keep.states = exec.empty({kernels::norm_descent_scan_kept(exec, rule)});
  }
  kernels::norm_descent_scan_forward(
      exec, rule, states_of<kernels::NormDescentStates>(from), out,
      states_of<kernels::NormDescentStatesOut>(leaving == nullptr ? State{} : *leaving),
      wanted(keep.states));
  return out;
}

void NormDescentRecurrence::run_backward(Exec& exec, const NormDescentInputs& in,
                                         const Sequence& sequence, const NormDescentKept& keep,
                                         const State& entering, const Cotangents& d,
                                         const NormDescentOutputs& gradients) const {
  State d_entering = zeros(exec, sequence.count());
  const State from = entering.empty() ? start(exec, sequence.count()) : entering;
  d_entering.resize(from.size());
  const std::vector<int32_t> before = tokens_before(sequence);
  kernels::norm_descent_scan_backward(
      exec, scan(in, sequence, before), states_of<kernels::NormDescentStates>(from), d.d_out,
      states_of<kernels::NormDescentStates>(d.d_leaving),
      {.dq = gradients.q,
       .dk = gradients.k,
       .dv = gradients.v,
       .d_eta = gradients.eta,
       .d_w = gradients.w,
       .d_c = gradients.c,
       .entering = states_of<kernels::NormDescentStatesOut>(d_entering)},
      given(keep.states));
  start_backward(exec, sequence, entering, d_entering, gradients);
  if (d.d_entering != nullptr) *d.d_entering = std::move(d_entering);
}

void NormDescentRecurrence::start_backward(Exec& exec, const Sequence& sequence,
                                           const State& entering, const State& d_entering,
                                           const NormDescentOutputs& gradients) const {
  if (gradients.start_m.data == nullptr) return;
  std::vector<bool> starts(static_cast<size_t>(sequence.count()),
                           entering.empty() || sequence.is_split());
  for (const Chain& chain : sequence.chains) {
    if (sequence.is_split() && chain.continues) starts[static_cast<size_t>(chain.first)] = false;
  }
  for (size_t i = 0; i < d_entering.size(); ++i) {
    const View to = i % 2 == 0 ? gradients.start_m : gradients.start_n;
    for (size_t n = 0; n < starts.size(); ++n) {
      if (starts[n]) kernels::add(exec, to, d_entering[i].row(static_cast<int64_t>(n)), to);
    }
  }
}

Summary NormDescentRecurrence::summarize(Exec&, const NormDescentInputs&, const Sequence&) const {
  return no_summary<Summary>();
}
Summary NormDescentRecurrence::combine(Exec&, const Summary&, const Summary&) const {
  return no_summary<Summary>();
}
State NormDescentRecurrence::apply(Exec&, const Summary&, const State&) const {
  return no_summary<State>();
}
State NormDescentRecurrence::apply_adjoint(Exec&, const Summary&, const State&,
                                           const State&) const {
  return no_summary<State>();
}
State NormDescentRecurrence::state_gradient(Exec&, const NormDescentInputs&, const Sequence&,
                                            const NormDescentKept&, const State&, ConstView) const {
  return no_summary<State>();
}

double NormDescentRecurrence::flops_per_token() const {
  // k A, q M and k^T u; scores and what they weigh inside a piece.
  const auto width = static_cast<double>(options_.width);
  const auto piece = static_cast<double>(std::min<int64_t>(64, options_.mini_batch));
  return static_cast<double>(options_.heads) * (6.0 * width * width + 2.0 * piece * width);
}

}  // namespace weft
