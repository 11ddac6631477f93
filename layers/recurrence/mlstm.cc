#include "layers/recurrence/mlstm.h"

#include <algorithm>
#include <cmath>

#include "core/host_access.h"
#include "kernels/rows/normalizer.h"

namespace weft {
namespace {

// e^x for differences of m, with nothing left of what never was.
float weight(float x) { return x < 0.5f * kernels::kMlstmNothing ? 0.0f : std::exp(x); }

// work(head of a sequence): all of them, in parallel.
template <class Work>
void each_head(Exec& exec, const Tensor& m, Work work) {
  exec.threads.run(m.elements(), [&](int64_t i) { work(i); });
}

double dot(const float* a, const float* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
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

// m = max(b + m_in, m_span);   C = e^{b + m_in - m} C_in + e^{m_span - m} C_span,   n likewise
State MlstmRecurrence::apply(Exec& exec, const Summary& span, const State& entering) const {
  State out;
  for (const Tensor& t : entering) out.push_back(exec.empty(t.shape()));
  each_head(exec, entering[2], [&](int64_t i) {
    const float kept = host<float>(span.transition[0])[i] + host<float>(entering[2])[i];
    const float written = host<float>(span.update[2])[i], m = std::max(kept, written);
    host<float>(out[2])[i] = m;
    const float old_part = weight(kept - m), new_part = weight(written - m);
    for (const size_t part : {0, 1}) {
      const int64_t size = part == 0 ? o_.dk * o_.dv : o_.dk;
      const float* before = host<float>(entering[part]) + i * size;
      const float* added = host<float>(span.update[part]) + i * size;
      float* to = host<float>(out[part]) + i * size;
      for (int64_t e = 0; e < size; ++e) to[e] = old_part * before[e] + new_part * added[e];
    }
  });
  return out;
}

State MlstmRecurrence::apply_adjoint(Exec& exec, const Summary& span, const State& entering,
                                     const State& d_leaving) const {
  State d;
  for (const Tensor& t : entering) d.push_back(exec.empty(t.shape()));
  each_head(exec, entering[2], [&](int64_t i) {
    const float kept = host<float>(span.transition[0])[i] + host<float>(entering[2])[i];
    const float written = host<float>(span.update[2])[i];
    const bool old_wins = kept > written;  // then m = kept, and only what was written is rescaled
    const float m = std::max(kept, written);
    const float old_part = weight(kept - m), new_part = weight(written - m);
    double dm = old_wins ? double{host<float>(d_leaving[2])[i]} : 0.0;
    for (const size_t part : {0, 1}) {
      const int64_t size = part == 0 ? o_.dk * o_.dv : o_.dk;
      const float* from = host<float>(d_leaving[part]) + i * size;
      float* to = host<float>(d[part]) + i * size;
      for (int64_t e = 0; e < size; ++e) to[e] = old_part * from[e];
      dm += old_wins ? -new_part * dot(from, host<float>(span.update[part]) + i * size, size)
                     : old_part * dot(from, host<float>(entering[part]) + i * size, size);
    }
    host<float>(d[2])[i] = static_cast<float>(dm);
  });
  return d;
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
  const Tensor last = exec.zeros({sequence.count(), o_.heads});
  for (int64_t d = 0; d < sequence.count(); ++d) {
    const int64_t end = sequence.documents[static_cast<size_t>(d) + 1];
    const bool empty = end == sequence.documents[static_cast<size_t>(d)];
    if (empty && entering.data == nullptr) continue;
    const float* from =
        empty ? host<float>(entering) + d * o_.heads : host<float>(rows) + (end - 1) * o_.heads;
    std::copy_n(from, o_.heads, host<float>(last) + d * o_.heads);
  }
  return last;
}

Tensor MlstmRecurrence::plain(Exec& exec, const State& state) const {
  if (state.empty()) return {};
  const Tensor wide = exec.empty({state[2].shape()[0], o_.heads, o_.dk, o_.dv + 1});
  each_head(exec, state[2], [&](int64_t i) {
    const float factor = std::exp(host<float>(state[2])[i]);
    float* to = host<float>(wide) + i * o_.dk * (o_.dv + 1);
    for (int64_t a = 0; a < o_.dk; ++a) {
      const float* c = host<float>(state[0]) + (i * o_.dk + a) * o_.dv;
      for (int64_t b = 0; b < o_.dv; ++b) *to++ = factor * c[b];
      *to++ = factor * host<float>(state[1])[i * o_.dk + a];
    }
  });
  return wide;
}

State MlstmRecurrence::stabilised(Exec& exec, const Tensor& wide, const Tensor& rest,
                                  const Tensor& m) const {
  const int64_t n = wide.shape()[0];
  State out = {exec.empty({n, o_.heads, o_.dk, o_.dv}), exec.empty({n, o_.heads, o_.dk}), m};
  each_head(exec, m, [&](int64_t i) {
    const float level = host<float>(m)[i];
    const float factor =
        level < 0.5f * kernels::kMlstmNothing ? 0.0f : std::exp(host<float>(rest)[i] - level);
    const float* from = host<float>(wide) + i * o_.dk * (o_.dv + 1);
    for (int64_t a = 0; a < o_.dk; ++a) {
      float* c = host<float>(out[0]) + (i * o_.dk + a) * o_.dv;
      for (int64_t b = 0; b < o_.dv; ++b) c[b] = factor * *from++;
      host<float>(out[1])[i * o_.dk + a] = factor * *from++;
    }
  });
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

// What left is C = e^{r - m} after, n likewise: what the factor costs goes to r and m.
MlstmRecurrence::LeavingGradient MlstmRecurrence::leaving_gradient(Exec& exec,
                                                                   const MlstmKept& keep,
                                                                   const Sequence& sequence,
                                                                   ConstView entering_m,
                                                                   const State& d_leaving) const {
  WEFT_CHECK(keep.after.defined(), "mlstm: a gradient of a state that did not leave");
  const int64_t width = o_.dk * (o_.dv + 1);
  const Tensor rest = last(exec, sequence, keep.rest, {}),
               m = last(exec, sequence, keep.m, entering_m);
  const LeavingGradient d{exec.empty(keep.after.shape()), exec.empty(m.shape()),
                          exec.empty(m.shape())};
  each_head(exec, m, [&](int64_t i) {
    const float factor = std::exp(host<float>(rest)[i] - host<float>(m)[i]);
    float* to = host<float>(d.after) + i * width;
    for (int64_t a = 0; a < o_.dk; ++a) {
      const float* dc = host<float>(d_leaving[0]) + (i * o_.dk + a) * o_.dv;
      for (int64_t b = 0; b < o_.dv; ++b) to[a * (o_.dv + 1) + b] = factor * dc[b];
      to[a * (o_.dv + 1) + o_.dv] = factor * host<float>(d_leaving[1])[i * o_.dk + a];
    }
    const double along = dot(to, host<float>(keep.after) + i * width, width);
    host<float>(d.rest)[i] = static_cast<float>(along);
    host<float>(d.m)[i] = static_cast<float>(double{host<float>(d_leaving[2])[i]} - along);
  });
  return d;
}

// What entered the scan is e^m C: d_C_in = e^m d_C, and d_m, to which `dm` is what the gates say,
// has <d_C, e^m C> more.
State MlstmRecurrence::entering_gradient(Exec& exec, const State& entering, const Tensor& before,
                                         const Tensor& d_before, const Tensor& dm) const {
  const int64_t width = o_.dk * (o_.dv + 1);
  const Tensor zero = exec.zeros(dm.shape()), minus_m = exec.zeros(dm.shape());
  each_head(exec, dm, [&](int64_t i) {
    if (entering.empty()) return;
    const double along =
        dot(host<float>(d_before) + i * width, host<float>(before) + i * width, width);
    host<float>(dm)[i] += static_cast<float>(along);
    host<float>(minus_m)[i] = -host<float>(entering[2])[i];
  });
  State d = stabilised(exec, d_before, zero, minus_m);
  d[2] = dm;
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
  std::fill_n(host<float>(nothing), nothing.elements(), kernels::kMlstmNothing);
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
