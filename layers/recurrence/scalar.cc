#include "layers/recurrence/scalar.h"

#include "kernels/rows/elementwise.h"

namespace weft {
namespace {

std::vector<Shape> state_of(const ScalarRecurrence::Options& o) {
  const HeadOptions& h = o.heads;
  if (!o.normalize) return {{h.heads, h.dk, h.dv}};
  return {{h.heads, h.dk, h.dv}, {h.heads, h.dk}};
}

}  // namespace

ScalarRecurrence::ScalarRecurrence(const Options& options)
    : AffineRecurrence(Transition::kFactor, state_of(options)), options_(options) {}

kernels::ScalarScan ScalarRecurrence::scan(const ScalarInputs& in, ConstView values,
                                           const Sequence& sequence) const {
  const HeadOptions& h = options_.heads;
  return {.q = in.q,
          .k = in.k,
          .v = values,
          .log_decay = in.log_decay,
          .documents = sequence.documents,
          .heads = h.heads,
          .kv_heads = h.kv_heads,
          .key = h.dk,
          .value = h.dv + (options_.normalize ? 1 : 0),
          .scale = options_.scale,
          .qk_heads = options_.qk_heads};
}

Tensor ScalarRecurrence::with_ones(Exec& exec, ConstView v) const {
  const HeadOptions& h = options_.heads;
  const Tensor values = exec.empty({v.rows(), h.kv_heads * (h.dv + 1)}, v.dtype);
  kernels::append_ones(exec, h.kv_heads, v, values);
  return values;
}

// With `normalize`, M and z are the columns of one state [n, heads, dk, dv + 1].
Tensor ScalarRecurrence::join(Exec& exec, const State& state) const {
  if (state.empty()) return {};
  if (!options_.normalize) return state[0];
  const Shape& s = state[0].shape();
  const Tensor wide = exec.empty({s[0], s[1], s[2], s[3] + 1});
  kernels::copy(exec, state[0], wide.view().columns(0, s[3]));
  kernels::copy(exec, state[1].reshaped({s[0], s[1], s[2], 1}), wide.view().columns(s[3], 1));
  return wide;
}

State ScalarRecurrence::split(Exec& exec, const Tensor& wide) const {
  if (!options_.normalize) return {wide};
  const Shape& s = wide.shape();
  const Tensor m = exec.empty({s[0], s[1], s[2], s[3] - 1}), z = exec.empty({s[0], s[1], s[2]});
  kernels::copy(exec, wide.view().columns(0, s[3] - 1), m);
  kernels::copy(exec, wide.view().columns(s[3] - 1, 1), z.reshaped({s[0], s[1], s[2], 1}));
  return {m, z};
}

Tensor ScalarRecurrence::run(Exec& exec, const ScalarInputs& in, const Sequence& sequence,
                             const State& entering, State* leaving, ScalarKept& keep) const {
  const HeadOptions& h = options_.heads;
  ConstView values = in.v;
  if (options_.normalize) {
    keep.values = with_ones(exec, in.v);
    values = keep.values;
    keep.out = exec.empty({sequence.tokens(), h.heads * (h.dv + 1)});
  }
  const kernels::ScalarScan scan = this->scan(in, values, sequence);
  const Tensor out = exec.empty({sequence.tokens(), h.heads * h.dv}, in.v.dtype);
  const Tensor after =
      leaving == nullptr ? Tensor{} : exec.empty({sequence.count(), h.heads, scan.key, scan.value});
  if (sequence.chunk_states == ChunkStates::kKept)
    keep.chunks = exec.empty({kernels::scalar_scan_kept(exec, scan)});
  kernels::scalar_scan_forward(exec, scan, given(join(exec, entering)),
                               options_.normalize ? keep.out : out,
                               leaving == nullptr ? View{} : after.view(), wanted(keep.chunks));
  if (options_.normalize)
    kernels::divide_by_last_channel(exec, h.heads, keep.out, out, options_.epsilon);
  if (leaving != nullptr) *leaving = split(exec, after);
  return out;
}

// The gradient of what the scan gives: numerator and denominator with `normalize`.
ConstView ScalarRecurrence::scan_gradient(Exec& exec, const ScalarKept& keep, ConstView d_out,
                                          Tensor& hold) const {
  if (!options_.normalize) return d_out;
  hold = exec.empty(keep.out.shape());
  kernels::divide_by_last_channel_backward(exec, options_.heads.heads, keep.out, d_out, hold,
                                           options_.epsilon);
  return hold;
}

void ScalarRecurrence::run_backward(Exec& exec, const ScalarInputs& in, const Sequence& sequence,
                                    const ScalarKept& keep, const State& entering,
                                    const Cotangents& d, const ScalarGradients& gradients) const {
  const HeadOptions& h = options_.heads;
  const ConstView values = options_.normalize ? ConstView(keep.values) : in.v;
  const kernels::ScalarScan scan = this->scan(in, values, sequence);
  kernels::ScalarScanGradients out{.dq = gradients.q,
                                   .dk = gradients.k,
                                   .dv = gradients.v,
                                   .d_log_decay = gradients.log_decay,
                                   .d_initial_state = {}};
  const Tensor d_values = options_.normalize ? exec.empty(keep.values.shape()) : Tensor{};
  if (options_.normalize) out.dv = d_values;
  Tensor d_scan;
  const Tensor before = d.d_entering == nullptr
                            ? Tensor{}
                            : exec.empty({sequence.count(), h.heads, scan.key, scan.value});
  if (before.defined()) out.d_initial_state = before;
  kernels::scalar_scan_backward(exec, scan, given(join(exec, entering)),
                                scan_gradient(exec, keep, d.d_out, d_scan),
                                given(join(exec, d.d_leaving)), out, given(keep.chunks));
  if (options_.normalize) kernels::drop_last_channel(exec, h.kv_heads, d_values, gradients.v);
  if (d.d_entering != nullptr) *d.d_entering = split(exec, before);
}

Summary ScalarRecurrence::summarize(Exec& exec, const ScalarInputs& in,
                                    const Sequence& sequence) const {
  const HeadOptions& h = options_.heads;
  const Tensor values = options_.normalize ? with_ones(exec, in.v) : Tensor{};
  const auto scan = this->scan(in, values.defined() ? ConstView(values) : in.v, sequence);
  const Tensor update = exec.empty({sequence.count(), h.heads, scan.key, scan.value});
  const Tensor total = exec.empty({sequence.count(), h.heads});
  kernels::scalar_scan_summary(exec, scan, update, total);
  if (in.log_decay.data == nullptr) return {{}, split(exec, update)};
  if (in.log_decay.shape.dims() == 1) {  // one decay for all tokens
    const Tensor decays = exec.empty(in.log_decay.shape);
    kernels::copy(exec, in.log_decay, decays);
    return {{token_counts(exec, sequence)}, split(exec, update), {decays}};
  }
  return {{total}, split(exec, update)};
}

State ScalarRecurrence::state_gradient(Exec& exec, const ScalarInputs& in, const Sequence& sequence,
                                       const ScalarKept& keep, const State&,
                                       ConstView d_out) const {
  const ConstView values = options_.normalize ? ConstView(keep.values) : in.v;
  const kernels::ScalarScan scan = this->scan(in, values, sequence);
  const Tensor before = exec.empty({sequence.count(), options_.heads.heads, scan.key, scan.value});
  Tensor d_scan;
  kernels::scalar_scan_state_gradient(exec, scan, scan_gradient(exec, keep, d_out, d_scan), before);
  return split(exec, before);
}

double ScalarRecurrence::flops_per_token() const {
  constexpr double kChunk = 64;  // the counting of MFU, whatever the kernel chooses
  const auto dk = static_cast<double>(options_.heads.dk),
             dv = static_cast<double>(options_.heads.dv);
  return static_cast<double>(options_.heads.heads) * (kChunk * (dk + dv) + 4.0 * dk * dv);
}

}  // namespace weft
