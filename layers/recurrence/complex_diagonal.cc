#include "layers/recurrence/complex_diagonal.h"

#include "kernels/gates/phase.h"
#include "kernels/states/turn.h"

namespace weft {
namespace {

// A state of the fixed frame in that of a document's start, or a gradient back: both conjugate.
Tensor conjugate(Exec& exec, const Tensor& state, Shape shape) {
  const Tensor out = exec.empty(shape);
  kernels::conjugate_state(exec, state, out);
  return out;
}

// (R, N) in the last token's frame -> M = e^{i f} (R - i N); its own transpose, for gradients.
Tensor to_fixed_frame(Exec& exec, const Tensor& turns, const Tensor& state, Shape shape) {
  const Tensor out = exec.empty(shape);
  kernels::turn_state(exec, turns, kernels::Turn::kConjugate, state, out);
  return out;
}

}  // namespace

ComplexDiagonalRecurrence::ComplexDiagonalRecurrence(const Options& options)
    : AffineRecurrence(Transition::kTurn,
                       {{options.heads.heads, 2, options.heads.dk, options.heads.dv}}),
      options_(options) {
  WEFT_CHECK(options.heads.kv_heads == options.heads.heads,
             "complex decays are not shared by groups of heads");
}

kernels::DiagonalScan ComplexDiagonalRecurrence::scan(const ComplexDiagonalInputs& in,
                                                      const ComplexDiagonalKept& keep,
                                                      const Sequence& sequence) const {
  const HeadOptions& h = options_.heads;
  return {.q = keep.q,
          .k = keep.k,
          .v = in.v,
          .log_decay = keep.decay,
          .bonus = {},
          .documents = sequence.documents,
          .heads = h.heads,
          .kv_heads = h.heads,
          .key = 2 * h.dk,
          .value = h.dv,
          .scale = options_.scale};
}

Tensor ComplexDiagonalRecurrence::run(Exec& exec, const ComplexDiagonalInputs& in,
                                      const Sequence& sequence, const State& entering,
                                      State* leaving, ComplexDiagonalKept& keep) const {
  const HeadOptions& h = options_.heads;
  turn_keys(exec, in, sequence, keep);
  kernels::turn_forward(exec, h.heads, keep.phase, in.q, keep.q);
  Tensor before;
  if (!entering.empty()) before = conjugate(exec, entering[0], keep.leaving.shape());
  const Tensor out = exec.empty({sequence.tokens(), h.heads * h.dv}, in.v.dtype);
  const kernels::DiagonalScan rule = scan(in, keep, sequence);
  if (sequence.chunk_states == ChunkStates::kKept)
    keep.chunks = exec.empty({kernels::diagonal_scan_kept(exec, rule)});
  kernels::diagonal_scan_forward(exec, rule, given(before), out, keep.leaving, wanted(keep.chunks));
  if (leaving != nullptr) {
    const Tensor turns = last_turns(exec, sequence, keep.phase, {});
    *leaving = {
        to_fixed_frame(exec, turns, keep.leaving, {sequence.count(), h.heads, 2, h.dk, h.dv})};
  }
  return out;
}

void ComplexDiagonalRecurrence::turn_keys(Exec& exec, const ComplexDiagonalInputs& in,
                                          const Sequence& sequence,
                                          ComplexDiagonalKept& keep) const {
  const HeadOptions& h = options_.heads;
  const int64_t tokens = sequence.tokens(), width = h.heads * h.dk;
  keep.phase = exec.empty({tokens, width});
  keep.q = exec.empty({tokens, 2 * width}, in.q.dtype);
  keep.k = exec.empty({tokens, 2 * width}, in.k.dtype);
  keep.decay = exec.empty({tokens, 2 * width});
  keep.leaving = exec.empty({sequence.count(), h.heads, 2 * h.dk, h.dv});
  kernels::running_phase_forward(exec, sequence.documents, in.phase, keep.phase);
  kernels::turn_forward(exec, h.heads, keep.phase, in.k, keep.k);
  kernels::turn_forward(exec, h.heads, {}, in.log_decay, keep.decay);
}

void ComplexDiagonalRecurrence::run_backward(Exec& exec, const ComplexDiagonalInputs& in,
                                             const Sequence& sequence,
                                             const ComplexDiagonalKept& keep, const State& entering,
                                             const Cotangents& d,
                                             const ComplexDiagonalGradients& gradients) const {
  const HeadOptions& h = options_.heads;
  const Shape turning = keep.leaving.shape(), fixed{turning[0], h.heads, 2, h.dk, h.dv};
  Tensor before, d_leaving, d_last;
  if (!entering.empty()) before = conjugate(exec, entering[0], turning);
  if (!d.d_leaving.empty()) {
    const Tensor turns = last_turns(exec, sequence, keep.phase, {});
    const Tensor leaving = to_fixed_frame(exec, turns, keep.leaving, fixed);
    d_leaving = to_fixed_frame(exec, turns, d.d_leaving[0], fixed).reshaped(turning);
    d_last = exec.empty({sequence.count(), h.heads * h.dk});
    kernels::turn_gradient(exec, leaving, d.d_leaving[0], d_last);
  }
  const Tensor dq = exec.empty(keep.q.shape(), keep.q.dtype()),
               dk = exec.empty(keep.k.shape(), keep.k.dtype()),
               d_decay = exec.empty(keep.decay.shape()), d_before = exec.empty(turning);
  kernels::diagonal_scan_backward(exec, scan(in, keep, sequence), given(before), d.d_out,
                                  given(d_leaving),
                                  {.dq = dq,
                                   .dk = dk,
                                   .dv = gradients.v,
                                   .d_log_decay = d_decay,
                                   .d_bonus = {},
                                   .d_initial_state = d_before},
                                  given(keep.chunks));
  const Tensor d_phase = exec.zeros(keep.phase.shape());
  kernels::turn_backward(exec, h.heads, {keep.phase, in.q, dq, gradients.q, d_phase});
  kernels::turn_backward(exec, h.heads, {keep.phase, in.k, dk, gradients.k, d_phase});
  kernels::turn_backward(exec, h.heads, {{}, {}, d_decay, gradients.log_decay, {}});
  kernels::running_phase_backward(exec, sequence.documents, d_phase, given(d_last),
                                  gradients.phase);
  if (d.d_entering != nullptr) *d.d_entering = {conjugate(exec, d_before, fixed)};
}

Summary ComplexDiagonalRecurrence::summarize(Exec& exec, const ComplexDiagonalInputs& in,
                                             const Sequence& sequence) const {
  const HeadOptions& h = options_.heads;
  ComplexDiagonalKept kept;
  turn_keys(exec, in, sequence, kept);
  kernels::diagonal_scan_forward(exec, scan(in, kept, sequence), {}, {}, kept.leaving);
  const Tensor turns = last_turns(exec, sequence, kept.phase, {}),
               update = to_fixed_frame(exec, turns, kept.leaving,
                                       {sequence.count(), h.heads, 2, h.dk, h.dv}),
               logs = summed_rows(exec, in.log_decay, sequence, {h.heads, h.heads, h.dk});
  return {{last_turns(exec, sequence, kept.phase, logs)}, {update}};
}

Tensor ComplexDiagonalRecurrence::last_turns(Exec& exec, const Sequence& sequence,
                                             const Tensor& phase, ConstView logs) const {
  const Tensor turns = exec.empty({sequence.count(), options_.heads.heads, 2, options_.heads.dk});
  kernels::last_turns(exec, sequence.documents, phase, logs, turns);
  return turns;
}

ComplexDiagonalGradients ComplexDiagonalRecurrence::scratch_gradients(
    Exec& exec, const ComplexDiagonalInputs& in, std::vector<Tensor>& hold) const {
  return {scratch_like(exec, in.q, hold), scratch_like(exec, in.k, hold),
          scratch_like(exec, in.v, hold), scratch_like(exec, in.log_decay, hold),
          scratch_like(exec, in.phase, hold)};
}

double ComplexDiagonalRecurrence::flops_per_token() const {
  constexpr double kChunk = 64;  // the counting of MFU, whatever the kernel chooses
  const auto dk = 2.0 * static_cast<double>(options_.heads.dk),
             dv = static_cast<double>(options_.heads.dv);
  return static_cast<double>(options_.heads.heads) * (kChunk * (dk + dv) + 5.0 * dk * dv);
}

}  // namespace weft
