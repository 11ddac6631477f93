#include "layers/recurrence/delta.h"

#include "kernels/states/matrices.h"

namespace weft {
DeltaRecurrence::DeltaRecurrence(const Options& options)
    : AffineRecurrence(Transition::kDense, {{options.heads, options.dk, options.dv}}),
      options_(options) {}

kernels::DeltaScan DeltaRecurrence::scan(const DeltaInputs& in, const Sequence& sequence) const {
  return {.q = in.q,
          .k = in.k,
          .v = in.v,
          .beta = in.beta,
          .log_decay = in.log_decay,
          .documents = sequence.documents,
          .heads = options_.heads,
          .qk_heads = options_.qk_heads,
          .key = options_.dk,
          .value = options_.dv,
          .scale = options_.scale};
}

Tensor DeltaRecurrence::run(Exec& exec, const DeltaInputs& in, const Sequence& sequence,
                            const State& entering, State* leaving, DeltaKept& keep) const {
  const Options& o = options_;
  const Tensor out = exec.empty({sequence.tokens(), o.heads * o.dv}, in.v.dtype);
  if (leaving != nullptr) *leaving = {exec.empty({sequence.count(), o.heads, o.dk, o.dv})};
  const kernels::DeltaScan rule = scan(in, sequence);
  if (sequence.chunk_states == ChunkStates::kKept) {
    keep.chunks = exec.empty({kernels::delta_scan_kept(exec, rule)});
  }
  kernels::delta_scan_forward(exec, rule, given(entering), out,
                              leaving == nullptr ? View{} : leaving->at(0).view(),
                              wanted(keep.chunks));
  return out;
}

void DeltaRecurrence::run_backward(Exec& exec, const DeltaInputs& in, const Sequence& sequence,
                                   const DeltaKept& keep, const State& entering,
                                   const Cotangents& d, const DeltaGradients& gradients) const {
  const Options& o = options_;
  if (d.d_entering != nullptr)
    *d.d_entering = {exec.empty({sequence.count(), o.heads, o.dk, o.dv})};
  kernels::delta_scan_backward(
      exec, scan(in, sequence), given(entering), d.d_out, given(d.d_leaving),
      {.dq = gradients.q,
       .dk = gradients.k,
       .dv = gradients.v,
       .d_beta = gradients.beta,
       .d_log_decay = gradients.log_decay,
       .d_initial_state = d.d_entering == nullptr ? View{} : d.d_entering->at(0).view()},
      given(keep.chunks));
}

// A span of zero values takes a state M to A M: from the identity, to A itself.
Summary DeltaRecurrence::summarize(Exec& exec, const DeltaInputs& in,
                                   const Sequence& sequence) const {
  const Options& o = options_;
  Options square = o;
  square.dv = o.dk;
  const Tensor none = exec.zeros({sequence.tokens(), o.heads * o.dk}, in.v.dtype);
  DeltaInputs silent = in;
  silent.v = none;
  const Tensor identity = exec.empty({sequence.count(), o.heads, o.dk, o.dk});
  kernels::set_identity(exec, 0, identity);
  return {DeltaRecurrence(square).pass(exec, silent, sequence, {identity}),
          pass(exec, in, sequence, {})};
}

State DeltaRecurrence::pass(Exec& exec, const DeltaInputs& in, const Sequence& sequence,
                            const State& entering) const {
  const State leaving = {exec.empty({sequence.count(), options_.heads, options_.dk, options_.dv})};
  kernels::delta_scan_forward(exec, scan(in, sequence), given(entering), {}, leaving[0]);
  return leaving;
}

DeltaGradients DeltaRecurrence::scratch_gradients(Exec& exec, const DeltaInputs& in,
                                                  std::vector<Tensor>& hold) const {
  return {scratch_like(exec, in.q, hold), scratch_like(exec, in.k, hold),
          scratch_like(exec, in.v, hold), scratch_like(exec, in.beta, hold),
          scratch_like(exec, in.log_decay, hold)};
}

double DeltaRecurrence::flops_per_token() const {
  // The recurrence of linear attention in chunks, the scores of keys with keys, the triangular
  // system and its product with the values, and what the state says to the keys.
  constexpr double kChunk = 64;  // the counting of MFU, whatever the kernel chooses
  const auto dk = static_cast<double>(options_.dk), dv = static_cast<double>(options_.dv);
  return static_cast<double>(options_.heads) *
         (kChunk * (2.0 * dk + 2.0 * dv + kChunk / 3.0) + 6.0 * dk * dv);
}

}  // namespace weft
