#include "layers/recurrence/delta.h"

namespace weft {
namespace {

ConstView or_empty(const Tensor& t) { return t.defined() ? ConstView(t) : ConstView{}; }

}  // namespace

kernels::DeltaScan DeltaRecurrence::scan(const Inputs& in, const Sequence& sequence) const {
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

Tensor DeltaRecurrence::forward(Exec& exec, const Inputs& in, const Sequence& sequence,
                                MixerState* state, SavedStack& saved) const {
  Saved f;
  Tensor leaving;
  if (state != nullptr) {
    leaving = exec.empty({sequence.count(), options_.heads, options_.dk, options_.dv});
    if (!state->tensors.empty()) f.entering = state->tensors[0];
  }
  const Tensor out = exec.empty({sequence.tokens(), options_.heads * options_.dv}, in.v.dtype);
  kernels::delta_scan_forward(exec, scan(in, sequence), or_empty(f.entering), out,
                              state != nullptr ? leaving.view() : View{});
  if (state != nullptr) state->tensors = {leaving};
  saved.push(std::move(f));
  return out;
}

void DeltaRecurrence::backward(Exec& exec, const Inputs& in, const Sequence& sequence,
                               const Tensor& d_out, MixerState* d_state, const Gradients& gradients,
                               SavedStack& saved) const {
  const Saved f = saved.pop<Saved>();
  Tensor d_leaving, d_entering;
  if (d_state != nullptr) {
    if (!d_state->tensors.empty()) d_leaving = d_state->tensors[0];
    d_entering = exec.empty({sequence.count(), options_.heads, options_.dk, options_.dv});
  }
  kernels::delta_scan_backward(exec, scan(in, sequence), or_empty(f.entering), d_out,
                               or_empty(d_leaving),
                               {.dq = gradients.q,
                                .dk = gradients.k,
                                .dv = gradients.v,
                                .d_beta = gradients.beta,
                                .d_log_decay = gradients.log_decay,
                                .d_initial_state = d_state != nullptr ? d_entering.view() : View{}});
  if (d_state != nullptr) d_state->tensors = {d_entering};
}

double DeltaRecurrence::flops_per_token() const {
  // The recurrence of linear attention in chunks, the scores of keys with keys, the triangular system
  // and its product with the values, and what the state says to the keys.
  constexpr double kChunk = 64;  // the counting of MFU, whatever the kernel chooses
  const auto dk = static_cast<double>(options_.dk), dv = static_cast<double>(options_.dv);
  return static_cast<double>(options_.heads) *
         (kChunk * (2.0 * dk + 2.0 * dv + kChunk / 3.0) + 6.0 * dk * dv);
}

}  // namespace weft
