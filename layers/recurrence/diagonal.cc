#include "layers/recurrence/diagonal.h"

namespace weft {
namespace {

ConstView or_empty(const Tensor& t) { return t.defined() ? ConstView(t) : ConstView{}; }

}  // namespace

kernels::DiagonalScan DiagonalRecurrence::scan(const Inputs& in, const Sequence& sequence) const {
  const HeadOptions& h = options_.heads;
  return {.q = in.q,
          .k = in.k,
          .v = in.v,
          .log_decay = in.log_decay,
          .bonus = in.bonus,
          .documents = sequence.documents,
          .heads = h.heads,
          .kv_heads = h.kv_heads,
          .key = h.dk,
          .value = h.dv,
          .scale = options_.scale};
}

Tensor DiagonalRecurrence::forward(Exec& exec, const Inputs& in, const Sequence& sequence,
                                   MixerState* state, SavedStack& saved) const {
  const HeadOptions& h = options_.heads;
  Saved f;
  Tensor leaving;
  if (state != nullptr) {
    leaving = exec.empty({sequence.count(), h.heads, h.dk, h.dv});
    if (!state->tensors.empty()) f.entering = state->tensors[0];
  }
  const Tensor out = exec.empty({sequence.tokens(), h.heads * h.dv}, in.v.dtype);
  kernels::diagonal_scan_forward(exec, scan(in, sequence), or_empty(f.entering), out,
                                 state != nullptr ? leaving.view() : View{});
  if (state != nullptr) state->tensors = {leaving};
  saved.push(std::move(f));
  return out;
}

void DiagonalRecurrence::backward(Exec& exec, const Inputs& in, const Sequence& sequence,
                                  const Tensor& d_out, MixerState* d_state,
                                  const Gradients& gradients, SavedStack& saved) const {
  const HeadOptions& h = options_.heads;
  const Saved f = saved.pop<Saved>();
  Tensor d_leaving, d_entering;
  if (d_state != nullptr) {
    if (!d_state->tensors.empty()) d_leaving = d_state->tensors[0];
    d_entering = exec.empty({sequence.count(), h.heads, h.dk, h.dv});
  }
  kernels::diagonal_scan_backward(exec, scan(in, sequence), or_empty(f.entering), d_out,
                                  or_empty(d_leaving),
                                  {.dq = gradients.q,
                                   .dk = gradients.k,
                                   .dv = gradients.v,
                                   .d_log_decay = gradients.log_decay,
                                   .d_bonus = gradients.bonus,
                                   .d_initial_state = d_state != nullptr ? d_entering.view() : View{}});
  if (d_state != nullptr) d_state->tensors = {d_entering};
}

double DiagonalRecurrence::flops_per_token() const {
  constexpr double kChunk = 64;  // the counting of MFU, whatever the kernel chooses
  const auto dk = static_cast<double>(options_.heads.dk), dv = static_cast<double>(options_.heads.dv);
  return static_cast<double>(options_.heads.heads) * (kChunk * (dk + dv) + 5.0 * dk * dv);
}

}  // namespace weft
