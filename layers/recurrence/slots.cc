#include "layers/recurrence/slots.h"

#include "kernels/rows/elementwise.h"
#include "kernels/rows/head_softmax.h"
#include "kernels/rows/slots.h"
#include "kernels/states/matrices.h"

namespace weft {
namespace {

// [n, heads, a, b] -> [n, heads, b, a]
Tensor transposed(Exec& exec, const Tensor& state) {
  const Shape& s = state.shape();
  const Tensor out = exec.empty({s[0], s[1], s[3], s[2]});
  kernels::transpose_matrices(exec, state, out);
  return out;
}

// The two parts of a state as the scans take them; undefined where there is none.
struct Parts {
  Tensor keys, values;  // keys transposed
  Parts(Exec& exec, const State& state) {
    if (state.empty()) return;
    keys = transposed(exec, state[0]);
    values = state[1];
  }
};

}  // namespace

SlotsRecurrence::SlotsRecurrence(const Options& options)
    : AffineRecurrence(Transition::kFactor,
                       {{options.heads.heads, options.slots, options.heads.dk},
                        {options.heads.heads, options.slots, options.heads.dv}}),
      options_(options) {}

kernels::DiagonalScan SlotsRecurrence::scores(const SlotsInputs& in, const SlotsKept& keep,
                                              const Sequence& sequence) const {
  const HeadOptions& h = options_.heads;
  return {.q = in.q,
          .k = in.k,
          .v = keep.write,
          .log_decay = {},
          .bonus = {},
          .documents = sequence.documents,
          .heads = h.heads,
          .kv_heads = h.kv_heads,
          .key = h.dk,
          .value = options_.slots,
          .scale = options_.scale,
          .value_log_decay = in.log_decay};
}

kernels::DiagonalScan SlotsRecurrence::reads(const SlotsInputs& in, const SlotsKept& keep,
                                             const Sequence& sequence) const {
  const HeadOptions& h = options_.heads;
  return {.q = keep.share,
          .k = keep.write,
          .v = in.v,
          .log_decay = in.log_decay,
          .bonus = {},
          .documents = sequence.documents,
          .heads = h.heads,
          .kv_heads = h.kv_heads,
          .key = options_.slots,
          .value = h.dv,
          .scale = 1.0f};
}

Tensor SlotsRecurrence::run(Exec& exec, const SlotsInputs& in, const Sequence& sequence,
                            const State& entering, State* leaving, SlotsKept& keep) const {
  const HeadOptions& h = options_.heads;
  const int64_t tokens = sequence.tokens(), slots = options_.slots, n = sequence.count();
  keep.write = exec.empty({tokens, h.kv_heads * slots}, in.v.dtype);
  kernels::slot_writes_forward(exec, in.log_decay, keep.write);
  const Parts before(exec, entering);
  Tensor keys, values;
  if (leaving != nullptr) {
    keys = exec.empty({n, h.heads, h.dk, slots});
    values = exec.empty({n, h.heads, slots, h.dv});
  }
  const Tensor scored = exec.empty({tokens, h.heads * slots});
  const bool keeps = sequence.chunk_states == ChunkStates::kKept;
  const kernels::DiagonalScan scoring = scores(in, keep, sequence);
  if (keeps) keep.key_chunks = exec.empty({kernels::diagonal_scan_kept(exec, scoring)});
  kernels::diagonal_scan_forward(exec, scoring, given(before.keys), scored, wanted(keys),
                                 wanted(keep.key_chunks));
  keep.share = exec.empty(scored.shape(), in.v.dtype);
  kernels::head_softmax_forward(exec, h.heads, scored, keep.share);
  const Tensor out = exec.empty({tokens, h.heads * h.dv}, in.v.dtype);
  const kernels::DiagonalScan reading = reads(in, keep, sequence);
  if (keeps) keep.value_chunks = exec.empty({kernels::diagonal_scan_kept(exec, reading)});
  kernels::diagonal_scan_forward(exec, reading, given(before.values), out, wanted(values),
                                 wanted(keep.value_chunks));
  if (leaving != nullptr) *leaving = {transposed(exec, keys), values};
  return out;
}

void SlotsRecurrence::run_backward(Exec& exec, const SlotsInputs& in, const Sequence& sequence,
                                   const SlotsKept& keep, const State& entering,
                                   const Cotangents& d, const SlotsGradients& gradients) const {
  const HeadOptions& h = options_.heads;
  const int64_t slots = options_.slots, n = sequence.count();
  const Parts before(exec, entering), d_after(exec, d.d_leaving);
  Tensor d_keys, d_values;
  if (d.d_entering != nullptr) {
    d_keys = exec.empty({n, h.heads, h.dk, slots});
    d_values = exec.empty({n, h.heads, slots, h.dv});
  }
  const Tensor d_share = exec.empty(keep.share.shape()), d_write = exec.empty(keep.write.shape()),
               d_decay = exec.empty(keep.write.shape());
  kernels::diagonal_scan_backward(exec, reads(in, keep, sequence), given(before.values), d.d_out,
                                  given(d_after.values),
                                  {.dq = d_share,
                                   .dk = d_write,
                                   .dv = gradients.v,
                                   .d_log_decay = gradients.log_decay,
                                   .d_bonus = {},
                                   .d_initial_state = wanted(d_values)},
                                  given(keep.value_chunks));
  kernels::slot_writes_backward(exec, in.log_decay, d_write, gradients.log_decay);
  kernels::head_softmax_backward(exec, h.heads, keep.share, d_share, d_share);
  kernels::diagonal_scan_backward(exec, scores(in, keep, sequence), given(before.keys), d_share,
                                  given(d_after.keys),
                                  {.dq = gradients.q,
                                   .dk = gradients.k,
                                   .dv = d_write,
                                   .d_log_decay = {},
                                   .d_bonus = {},
                                   .d_initial_state = wanted(d_keys),
                                   .d_value_log_decay = d_decay},
                                  given(keep.key_chunks));
  kernels::add(exec, gradients.log_decay, d_decay, gradients.log_decay);
  kernels::slot_writes_backward(exec, in.log_decay, d_write, gradients.log_decay);
  if (d.d_entering != nullptr) *d.d_entering = {transposed(exec, d_keys), d_values};
}

Summary SlotsRecurrence::summarize(Exec& exec, const SlotsInputs& in,
                                   const Sequence& sequence) const {
  const HeadOptions& h = options_.heads;
  const int64_t tokens = sequence.tokens(), slots = options_.slots, n = sequence.count();
  SlotsKept keep;
  keep.write = exec.empty({tokens, h.kv_heads * slots}, in.v.dtype);
  keep.share = exec.scratch({tokens, h.heads * slots}, in.v.dtype);
  kernels::slot_writes_forward(exec, in.log_decay, keep.write);
  const Tensor keys = exec.empty({n, h.heads, h.dk, slots}),
               values = exec.empty({n, h.heads, slots, h.dv});
  kernels::diagonal_scan_forward(exec, scores(in, keep, sequence), {}, {}, keys);
  kernels::diagonal_scan_forward(exec, reads(in, keep, sequence), {}, {}, values);
  return {{summed_rows(exec, in.log_decay, sequence, {h.heads, h.kv_heads, slots})},
          {transposed(exec, keys), values}};
}

SlotsGradients SlotsRecurrence::scratch_gradients(Exec& exec, const SlotsInputs& in,
                                                  std::vector<Tensor>& hold) const {
  return {scratch_like(exec, in.q, hold), scratch_like(exec, in.k, hold),
          scratch_like(exec, in.v, hold), scratch_like(exec, in.log_decay, hold)};
}

double SlotsRecurrence::flops_per_token() const {
  constexpr double kChunk = 64;  // the counting of MFU, whatever the kernel chooses
  const auto dk = static_cast<double>(options_.heads.dk),
             dv = static_cast<double>(options_.heads.dv), m = static_cast<double>(options_.slots);
  return static_cast<double>(options_.heads.heads) *
         (kChunk * (dk + dv + 2 * m) + 5.0 * m * (dk + dv));
}

}  // namespace weft
