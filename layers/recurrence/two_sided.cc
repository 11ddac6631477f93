#include "layers/recurrence/two_sided.h"

namespace weft {

TwoSidedRecurrence::TwoSidedRecurrence(const Options& options)
    : AffineRecurrence(Transition::kSides,
                       {{options.heads.heads, options.heads.dk, options.heads.dv}}),
      options_(options) {}

kernels::DiagonalScan TwoSidedRecurrence::scan(const TwoSidedInputs& in,
                                               const Sequence& sequence) const {
  const HeadOptions& h = options_.heads;
  return {.q = in.q,
          .k = in.k,
          .v = in.v,
          .log_decay = in.key_decay,
          .bonus = {},
          .documents = sequence.documents,
          .heads = h.heads,
          .kv_heads = h.kv_heads,
          .key = h.dk,
          .value = h.dv,
          .scale = options_.scale,
          .value_log_decay = in.value_decay};
}

Tensor TwoSidedRecurrence::run(Exec& exec, const TwoSidedInputs& in, const Sequence& sequence,
                               const State& entering, State* leaving, TwoSidedKept& keep) const {
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

void TwoSidedRecurrence::run_backward(Exec& exec, const TwoSidedInputs& in,
                                      const Sequence& sequence, const TwoSidedKept& keep,
                                      const State& entering, const Cotangents& d,
                                      const TwoSidedGradients& gradients) const {
  const HeadOptions& h = options_.heads;
  if (d.d_entering != nullptr) {
    *d.d_entering = {exec.empty({sequence.count(), h.heads, h.dk, h.dv})};
  }
  kernels::diagonal_scan_backward(
      exec, scan(in, sequence), given(entering), d.d_out, given(d.d_leaving),
      {.dq = gradients.q,
       .dk = gradients.k,
       .dv = gradients.v,
       .d_log_decay = gradients.key_decay,
       .d_bonus = {},
       .d_initial_state = d.d_entering == nullptr ? View{} : d.d_entering->at(0).view(),
       .d_value_log_decay = gradients.value_decay},
      given(keep.chunks));
}

Summary TwoSidedRecurrence::summarize(Exec& exec, const TwoSidedInputs& in,
                                      const Sequence& sequence) const {
  const HeadOptions& h = options_.heads;
  const State update = {exec.empty({sequence.count(), h.heads, h.dk, h.dv})};
  kernels::diagonal_scan_forward(exec, scan(in, sequence), {}, {}, update[0]);
  return {{summed_rows(exec, in.key_decay, sequence, {h.heads, h.kv_heads, h.dk}),
           summed_rows(exec, in.value_decay, sequence, {h.heads, h.kv_heads, h.dv})},
          update};
}

TwoSidedGradients TwoSidedRecurrence::scratch_gradients(Exec& exec, const TwoSidedInputs& in,
                                                        std::vector<Tensor>& hold) const {
  return {scratch_like(exec, in.q, hold), scratch_like(exec, in.k, hold),
          scratch_like(exec, in.v, hold), scratch_like(exec, in.key_decay, hold),
          scratch_like(exec, in.value_decay, hold)};
}

double TwoSidedRecurrence::flops_per_token() const {
  constexpr double kChunk = 64;  // the counting of MFU, whatever the kernel chooses
  const auto dk = static_cast<double>(options_.heads.dk),
             dv = static_cast<double>(options_.heads.dv);
  return static_cast<double>(options_.heads.heads) * (kChunk * (dk + dv) + 6.0 * dk * dv);
}

}  // namespace weft
