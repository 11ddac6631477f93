#include "layers/recurrence/momentum.h"

#include <algorithm>

#include "kernels/rows/elementwise.h"
#include "kernels/states/matrices.h"

namespace weft {
namespace {

std::vector<Shape> state_of(const MomentumRecurrence::Options& o) {
  const size_t parts = 1 + (o.momentum ? 1 : 0) + (o.mini_batch > 1 ? 1 : 0);
  return std::vector<Shape>(parts, {o.heads, o.dk, o.dv});
}

}  // namespace

MomentumRecurrence::MomentumRecurrence(const Options& options)
    : AffineRecurrence(Transition::kDense, state_of(options)), options_(options) {}

kernels::MomentumScan MomentumRecurrence::scan(const MomentumInputs& in, const Sequence& sequence,
                                               const std::vector<int32_t>& before) const {
  return {.q = in.q,
          .k = in.k,
          .v = in.v,
          .theta = in.theta,
          .alpha = in.alpha,
          .eta = in.eta,
          .documents = sequence.documents,
          .before = before,
          .heads = options_.heads,
          .key = options_.dk,
          .value = options_.dv,
          .mini_batch = options_.mini_batch,
          .scale = options_.scale};
}

template <class States>
States MomentumRecurrence::states(const State& state) const {
  const size_t anchor = options_.momentum ? 2 : 1;
  States out;
  if (!state.empty()) out.m = state[0];
  if (options_.momentum && state.size() > 1) out.s = state[1];
  if (state.size() > anchor) out.anchor = state[anchor];
  return out;
}

Tensor MomentumRecurrence::run(Exec& exec, const MomentumInputs& in, const Sequence& sequence,
                               const State& entering, State* leaving, MomentumKept& keep) const {
  const Tensor out = exec.empty({sequence.tokens(), options_.heads * options_.dv}, in.v.dtype);
  if (leaving != nullptr) *leaving = start(exec, sequence.count());
  const std::vector<int32_t> before = tokens_before(sequence);
  const kernels::MomentumScan rule = scan(in, sequence, before);
  if (sequence.chunk_states == ChunkStates::kKept) {
    keep.states = exec.empty({kernels::momentum_scan_kept(exec, rule)});
  }
  kernels::momentum_scan_forward(
      exec, rule, states<kernels::MomentumStates>(entering), out,
      states<kernels::MomentumStatesOut>(leaving == nullptr ? State{} : *leaving),
      wanted(keep.states));
  return out;
}

void MomentumRecurrence::run_backward(Exec& exec, const MomentumInputs& in,
                                      const Sequence& sequence, const MomentumKept& keep,
                                      const State& entering, const Cotangents& d,
                                      const MomentumGradients& gradients) const {
  if (d.d_entering != nullptr) {
    *d.d_entering = start(exec, sequence.count());
    if (!entering.empty()) d.d_entering->resize(entering.size());
  }
  const std::vector<int32_t> before = tokens_before(sequence);
  kernels::momentum_scan_backward(
      exec, scan(in, sequence, before), states<kernels::MomentumStates>(entering), d.d_out,
      states<kernels::MomentumStates>(d.d_leaving),
      {.dq = gradients.q,
       .dk = gradients.k,
       .dv = gradients.v,
       .d_theta = gradients.theta,
       .d_alpha = gradients.alpha,
       .d_eta = gradients.eta,
       .entering =
           states<kernels::MomentumStatesOut>(d.d_entering == nullptr ? State{} : *d.d_entering)},
      given(keep.states));
}

// A span of zero values is linear in its state: from the identity, its matrix itself.
Summary MomentumRecurrence::summarize(Exec& exec, const MomentumInputs& in,
                                      const Sequence& sequence) const {
  const auto parts = static_cast<int64_t>(one_state().size());
  const int64_t dk = options_.dk, rows = parts * dk, heads = sequence.count() * options_.heads;
  Options wide = options_;
  wide.dv = rows;
  const Tensor none = exec.zeros({sequence.tokens(), options_.heads * rows}, in.v.dtype);
  MomentumInputs silent = in;
  silent.v = none;
  const MomentumRecurrence linear(wide);
  const State identity = linear.start(exec, sequence.count());
  for (int64_t part = 0; part < parts; ++part) {
    kernels::set_identity(exec, part * dk, identity[static_cast<size_t>(part)]);
  }
  const State leaving = linear.pass(exec, silent, sequence, identity);
  const Tensor matrix = exec.empty({sequence.count(), options_.heads, rows, rows});
  const View flat = matrix.reshaped({heads, rows * rows});
  for (int64_t part = 0; part < parts; ++part) {
    kernels::copy(exec, leaving[static_cast<size_t>(part)].reshaped({heads, dk * rows}),
                  flat.columns(part * dk * rows, dk * rows));
  }
  return {{matrix}, pass(exec, in, sequence, {})};
}

State MomentumRecurrence::pass(Exec& exec, const MomentumInputs& in, const Sequence& sequence,
                               const State& entering) const {
  const State leaving = start(exec, sequence.count());
  const std::vector<int32_t> before = tokens_before(sequence);
  kernels::momentum_scan_forward(exec, scan(in, sequence, before),
                                 states<kernels::MomentumStates>(entering), {},
                                 states<kernels::MomentumStatesOut>(leaving));
  return leaving;
}

MomentumGradients MomentumRecurrence::scratch_gradients(Exec& exec, const MomentumInputs& in,
                                                        std::vector<Tensor>& hold) const {
  return {scratch_like(exec, in.q, hold),     scratch_like(exec, in.k, hold),
          scratch_like(exec, in.v, hold),     scratch_like(exec, in.theta, hold),
          scratch_like(exec, in.alpha, hold), scratch_like(exec, in.eta, hold)};
}

double MomentumRecurrence::flops_per_token() const {
  // Chunks as in the delta rule; a second state with momentum.
  constexpr double kChunk = 64;
  const auto dk = static_cast<double>(options_.dk), dv = static_cast<double>(options_.dv);
  return static_cast<double>(options_.heads) *
         (kChunk * (2.0 * dk + 2.0 * dv) + (options_.momentum ? 12.0 : 6.0) * dk * dv);
}

}  // namespace weft
