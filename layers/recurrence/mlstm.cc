#include "layers/recurrence/mlstm.h"

#include "kernels/rows/elementwise.h"
#include "kernels/rows/normalizer.h"
#include "layers/context/state.h"

namespace weft {
namespace {

kernels::MlstmState parts(const State& state) { return {state[0], state[1], state[2]}; }
kernels::MlstmStateOut parts_out(const State& state) {
  return {state[0].view(), state[1].view(), state[2].view()};
}

kernels::MlstmGates gates_of(const MlstmInputs& in, const Sequence& sequence, ConstView entering) {
  return {in.i, in.f, entering, sequence.documents, in.k.dtype == DType::kBF16};
}

ConstView m_of(const State& state) { return state.empty() ? ConstView{} : ConstView(state[2]); }

}  // namespace

State MlstmRecurrence::start(Exec& exec, int64_t sequences) const {
  return {exec.zeros({sequences, o_.heads, o_.dk, o_.dv}), exec.zeros({sequences, o_.heads, o_.dk}),
          exec.zeros({sequences, o_.heads})};
}

Summary MlstmRecurrence::combine(Exec& exec, const Summary& first, const Summary& second) const {
  return {add_states(exec, first.transition, second.transition), apply(exec, second, first.update)};
}

State MlstmRecurrence::room(Exec& exec, int64_t sequences) const {
  return {exec.empty({sequences, o_.heads, o_.dk, o_.dv}), exec.empty({sequences, o_.heads, o_.dk}),
          exec.empty({sequences, o_.heads})};
}

State MlstmRecurrence::apply(Exec& exec, const Summary& span, const State& entering) const {
  const State leaving = room(exec, entering[2].shape()[0]);
  kernels::mlstm_apply(exec, span.transition[0], parts(span.update), parts(entering),
                       parts_out(leaving));
  return leaving;
}

State MlstmRecurrence::apply_adjoint(Exec& exec, const Summary& span, const State& entering,
                                     const State& d_leaving) const {
  const State d_entering = room(exec, entering[2].shape()[0]);
  kernels::mlstm_apply_adjoint(exec, span.transition[0], parts(span.update), parts(entering),
                               parts(d_leaving), parts_out(d_entering));
  return d_entering;
}

kernels::ScalarScan MlstmRecurrence::scan(const MlstmInputs& in, const MlstmKept& keep,
                                          const Sequence& sequence) const {
  return {.q = in.q,
          .k = keep.keys,
          .v = keep.values,
          .log_decay = keep.log_decay,
          .documents = sequence.documents,
          .heads = o_.heads,
          .kv_heads = o_.heads,
          .key = o_.dk,
          .value = o_.dv + 1,
          .scale = o_.scale};
}

void MlstmRecurrence::prepare(Exec& exec, const MlstmInputs& in, const Sequence& sequence,
                              ConstView entering_m, MlstmKept& keep) const {
  const int64_t tokens = sequence.tokens();
  const Shape gates{tokens, o_.heads};
  keep.log_decay = exec.empty(gates), keep.rest = exec.empty(gates), keep.m = exec.empty(gates);
  kernels::mlstm_gates_forward(exec, gates_of(in, sequence, entering_m), keep.log_decay, keep.rest,
                               keep.m);
  keep.keys = exec.empty({tokens, o_.heads * o_.dk}, in.k.dtype);
  kernels::mlstm_keys(exec, in.k, in.i, keep.rest, keep.keys);
  keep.values = exec.empty({tokens, o_.heads * (o_.dv + 1)}, in.v.dtype);
  kernels::append_ones(exec, o_.heads, in.v, keep.values);
}

Tensor MlstmRecurrence::last(Exec& exec, const Sequence& sequence, const Tensor& rows,
                             ConstView entering) const {
  const Tensor last = exec.empty({sequence.count(), o_.heads});
  kernels::last_rows(exec, sequence.documents, rows, entering, last);
  return last;
}

Tensor MlstmRecurrence::plain(Exec& exec, const State& state) const {
  if (state.empty()) return {};
  const Tensor wide = exec.empty({state[2].shape()[0], o_.heads, o_.dk, o_.dv + 1});
  kernels::mlstm_widen(exec, parts(state), wide);
  return wide;
}

State MlstmRecurrence::stabilised(Exec& exec, const Tensor& wide, const Tensor& rest,
                                  const Tensor& m) const {
  State out = room(exec, wide.shape()[0]);
  kernels::mlstm_stabilise(exec, wide, rest, m, out[0], out[1]);
  out[2] = m;
  return out;
}

Tensor MlstmRecurrence::run(Exec& exec, const MlstmInputs& in, const Sequence& sequence,
                            const State& entering, State* leaving, MlstmKept& keep) const {
  prepare(exec, in, sequence, m_of(entering), keep);
  if (leaving != nullptr || sequence.is_split()) {
    keep.after = exec.empty({sequence.count(), o_.heads, o_.dk, o_.dv + 1});
  }
  keep.wide = exec.empty({sequence.tokens(), o_.heads * (o_.dv + 1)});
  const kernels::ScalarScan rule = scan(in, keep, sequence);
  if (sequence.chunk_states == ChunkStates::kKept)
    keep.chunks = exec.empty({kernels::scalar_scan_kept(exec, rule)});
  kernels::scalar_scan_forward(exec, rule, given(plain(exec, entering)), keep.wide,
                               wanted(keep.after), wanted(keep.chunks));
  const Tensor out = exec.empty({sequence.tokens(), o_.heads * o_.dv});
  kernels::mlstm_read_forward(exec, {keep.wide, keep.rest, keep.m}, out);
  if (leaving != nullptr) {
    *leaving = stabilised(exec, keep.after, last(exec, sequence, keep.rest, {}),
                          last(exec, sequence, keep.m, m_of(entering)));
  }
  return out;
}

MlstmRecurrence::LeavingGradient MlstmRecurrence::leaving_gradient(Exec& exec,
                                                                   const MlstmKept& keep,
                                                                   const Sequence& sequence,
                                                                   ConstView entering_m,
                                                                   const State& d_leaving) const {
  WEFT_CHECK(keep.after.defined(), "mlstm: a gradient of a state that did not leave");
  const Tensor rest = last(exec, sequence, keep.rest, {}),
               m = last(exec, sequence, keep.m, entering_m);
  const LeavingGradient d{exec.empty(keep.after.shape()), exec.empty(m.shape()),
                          exec.empty(m.shape())};
  kernels::mlstm_stabilise_backward(exec, keep.after, rest, m, parts(d_leaving),
                                    {d.after, d.rest, d.m});
  return d;
}

State MlstmRecurrence::entering_gradient(Exec& exec, const State& entering, const Tensor& before,
                                         const Tensor& d_before, const Tensor& dm) const {
  State d = room(exec, dm.shape()[0]);
  d[2] = dm;
  kernels::mlstm_widen_backward(exec, given(before), m_of(entering), d_before, parts_out(d));
  return d;
}

void MlstmRecurrence::run_backward(Exec& exec, const MlstmInputs& in, const Sequence& sequence,
                                   const MlstmKept& keep, const State& entering,
                                   const Cotangents& d, const MlstmGradients& gradients) const {
  const int64_t tokens = sequence.tokens();
  const Shape gates = keep.m.shape();
  const Tensor d_wide = exec.empty(keep.wide.shape()), d_rest = exec.empty(gates),
               dm = exec.empty(gates);
  kernels::mlstm_read_backward(exec, {keep.wide, keep.rest, keep.m}, d.d_out, d_wide, d_rest, dm);

  LeavingGradient d_last;
  if (!d.d_leaving.empty()) {
    d_last = leaving_gradient(exec, keep, sequence, m_of(entering), d.d_leaving);
  }
  Tensor d_before, dm_first;
  if (d.d_entering != nullptr) {
    d_before = exec.empty({sequence.count(), o_.heads, o_.dk, o_.dv + 1});
    dm_first = exec.empty({sequence.count(), o_.heads});
  }
  const Tensor before = plain(exec, entering);
  const Tensor d_keys = exec.empty({tokens, o_.heads * o_.dk}),
               d_values = exec.empty({tokens, o_.heads * (o_.dv + 1)}),
               d_log_decay = exec.empty(gates);
  kernels::scalar_scan_backward(
      exec, scan(in, keep, sequence), given(before), d_wide, given(d_last.after),
      {gradients.q, d_keys, d_values, d_log_decay, wanted(d_before)}, given(keep.chunks));
  kernels::drop_last_channel(exec, o_.heads, d_values, gradients.v);
  kernels::mlstm_keys(exec, d_keys, in.i, keep.rest, gradients.k);
  kernels::mlstm_gates_backward(exec, gates_of(in, sequence, m_of(entering)),
                                {keep.m, d_log_decay, d_rest, dm, given(d_last.rest),
                                 given(d_last.m), gradients.i, gradients.f, wanted(dm_first)});
  if (d.d_entering != nullptr) {
    *d.d_entering = entering_gradient(exec, entering, before, d_before, dm_first);
  }
}

Summary MlstmRecurrence::summarize(Exec& exec, const MlstmInputs& in,
                                   const Sequence& sequence) const {
  const Tensor nothing = exec.empty({sequence.count(), o_.heads});
  kernels::fill(exec, nothing, kernels::kMlstmNothing);
  MlstmKept keep;
  prepare(exec, in, sequence, nothing, keep);
  const Tensor update = exec.empty({sequence.count(), o_.heads, o_.dk, o_.dv + 1}),
               total = exec.empty({sequence.count(), o_.heads});
  kernels::scalar_scan_summary(exec, scan(in, keep, sequence), update, total);
  const Tensor rest = last(exec, sequence, keep.rest, {});
  return {add_states(exec, {total}, {rest}),
          stabilised(exec, update, rest, last(exec, sequence, keep.m, nothing))};
}

State MlstmRecurrence::state_gradient(Exec& exec, const MlstmInputs& in, const Sequence& sequence,
                                      const MlstmKept& keep, const State& entering,
                                      ConstView d_out) const {
  const Tensor q = exec.scratch(in.q.shape), k = exec.scratch(in.k.shape),
               v = exec.scratch(in.v.shape), i = exec.scratch(in.i.shape),
               f = exec.scratch(in.f.shape);
  State d_entering;
  run_backward(exec, in, sequence, keep, entering, {d_out, {}, &d_entering}, {q, k, v, i, f});
  return d_entering;
}

double MlstmRecurrence::flops_per_token() const {
  constexpr double kChunk = 64;  // the counting of MFU, whatever the kernel chooses
  const auto dk = static_cast<double>(o_.dk), dv = static_cast<double>(o_.dv);
  return static_cast<double>(o_.heads) * (kChunk * (dk + dv) + 6.0 * dk * dv);
}

}  // namespace weft
