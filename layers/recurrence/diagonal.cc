#include "layers/recurrence/diagonal.h"

namespace weft {
DiagonalRecurrence::DiagonalRecurrence(const Options& options)
    : AffineRecurrence(Transition::kFactor,
                       {{options.heads.heads, options.heads.dk, options.heads.dv}}),
      options_(options) {}

kernels::DiagonalScan DiagonalRecurrence::scan(const DiagonalInputs& in,
                                               const Sequence& sequence) const {
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

Tensor DiagonalRecurrence::run(Exec& exec, const DiagonalInputs& in, const Sequence& sequence,
                               const State& entering, State* leaving, DiagonalKept& keep) const {
  const HeadOptions& h = options_.heads;
  const Tensor out = exec.empty({sequence.tokens(), h.heads * h.dv}, in.v.dtype);
  if (leaving != nullptr) *leaving = {exec.empty({sequence.count(), h.heads, h.dk, h.dv})};
  const kernels::DiagonalScan rule = scan(in, sequence);
  if (sequence.chunk_states == ChunkStates::kKept)
    keep.chunks = exec.empty({kernels::diagonal_scan_kept(exec, rule)});
  kernels::diagonal_scan_forward(exec, rule, given(entering), out,
                                 leaving == nullptr ? View{} : leaving->at(0).view(),
                                 wanted(keep.chunks));
  return out;
}

void DiagonalRecurrence::run_backward(Exec& exec, const DiagonalInputs& in,
                                      const Sequence& sequence, const DiagonalKept& keep,
                                      const State& entering, const Cotangents& d,
                                      const DiagonalGradients& gradients) const {
  const HeadOptions& h = options_.heads;
  if (d.d_entering != nullptr)
    *d.d_entering = {exec.empty({sequence.count(), h.heads, h.dk, h.dv})};
  kernels::diagonal_scan_backward(
      exec, scan(in, sequence), given(entering), d.d_out, given(d.d_leaving),
      {.dq = gradients.q,
       .dk = gradients.k,
       .dv = gradients.v,
       .d_log_decay = gradients.log_decay,
       .d_bonus = gradients.bonus,
       .d_initial_state = d.d_entering == nullptr ? View{} : d.d_entering->at(0).view()},
      given(keep.chunks));
}

Summary DiagonalRecurrence::summarize(Exec& exec, const DiagonalInputs& in,
                                      const Sequence& sequence) const {
  const HeadOptions& h = options_.heads;
  const State update = {exec.empty({sequence.count(), h.heads, h.dk, h.dv})};
  kernels::diagonal_scan_forward(exec, scan(in, sequence), {}, {}, update[0]);
  return {{summed_rows(exec, in.log_decay, sequence, {h.heads, h.kv_heads, h.dk})}, update};
}

DiagonalGradients DiagonalRecurrence::scratch_gradients(Exec& exec, const DiagonalInputs& in,
                                                        std::vector<Tensor>& hold) const {
  return {scratch_like(exec, in.q, hold), scratch_like(exec, in.k, hold),
          scratch_like(exec, in.v, hold), scratch_like(exec, in.log_decay, hold),
          scratch_like(exec, in.bonus, hold)};
}

double DiagonalRecurrence::flops_per_token() const {
  constexpr double kChunk = 64;  // the counting of MFU, whatever the kernel chooses
  const auto dk = static_cast<double>(options_.heads.dk),
             dv = static_cast<double>(options_.heads.dv);
  return static_cast<double>(options_.heads.heads) * (kChunk * (dk + dv) + 5.0 * dk * dv);
}

}  // namespace weft
