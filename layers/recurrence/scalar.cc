#include "layers/recurrence/scalar.h"

#include "kernels/elementwise.h"
#include "kernels/normalizer.h"

namespace weft {
namespace {

ConstView or_empty(const Tensor& t) { return t.defined() ? ConstView(t) : ConstView{}; }

// M [n, heads, dk, dv] and z [n, heads, dk] as the one state [n, heads, dk, dv + 1] of the widened scan.
Tensor join_state(Exec& exec, const std::vector<Tensor>& state) {
  const Shape& s = state[0].shape();
  const Tensor wide = exec.empty({s[0], s[1], s[2], s[3] + 1});
  kernels::copy(exec, state[0], wide.view().columns(0, s[3]));
  kernels::copy(exec, state[1].reshaped({s[0], s[1], s[2], 1}), wide.view().columns(s[3], 1));
  return wide;
}

std::vector<Tensor> split_state(Exec& exec, const Tensor& wide) {
  const Shape& s = wide.shape();
  const Tensor m = exec.empty({s[0], s[1], s[2], s[3] - 1}), z = exec.empty({s[0], s[1], s[2]});
  kernels::copy(exec, wide.view().columns(0, s[3] - 1), m);
  kernels::copy(exec, wide.view().columns(s[3] - 1, 1), z.reshaped({s[0], s[1], s[2], 1}));
  return {m, z};
}

}  // namespace

kernels::ScalarScan ScalarRecurrence::scan(const Inputs& in, ConstView values,
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
          .scale = options_.scale};
}

Tensor ScalarRecurrence::forward(Exec& exec, const Inputs& in, const Sequence& sequence,
                                 MixerState* state, SavedStack& saved) const {
  const HeadOptions& h = options_.heads;
  const int64_t tokens = sequence.tokens();
  Saved f;
  ConstView values = in.v;
  if (options_.normalize) {
    f.values = exec.empty({tokens, h.kv_heads * (h.dv + 1)}, in.v.dtype);
    kernels::append_ones(exec, h.kv_heads, in.v, f.values);
    values = f.values;
    f.out = exec.empty({tokens, h.heads * (h.dv + 1)});
  }
  const kernels::ScalarScan scan = this->scan(in, values, sequence);
  Tensor leaving;
  if (state != nullptr) {
    leaving = exec.empty({sequence.count(), h.heads, scan.key, scan.value});
    if (!state->tensors.empty()) {
      f.entering = options_.normalize ? join_state(exec, state->tensors) : state->tensors[0];
    }
  }
  const Tensor out = exec.empty({tokens, h.heads * h.dv}, in.v.dtype);
  kernels::scalar_scan_forward(exec, scan, or_empty(f.entering), options_.normalize ? f.out : out,
                               state != nullptr ? leaving.view() : View{});
  if (options_.normalize) kernels::divide_by_last_channel(exec, h.heads, f.out, out);
  if (state != nullptr) {
    state->tensors = options_.normalize ? split_state(exec, leaving) : std::vector<Tensor>{leaving};
  }
  saved.push(std::move(f));
  return out;
}

void ScalarRecurrence::backward(Exec& exec, const Inputs& in, const Sequence& sequence,
                                const Tensor& d_out, MixerState* d_state, const Gradients& gradients,
                                SavedStack& saved) const {
  const HeadOptions& h = options_.heads;
  const Saved f = saved.pop<Saved>();
  const ConstView values = options_.normalize ? ConstView(f.values) : in.v;
  const kernels::ScalarScan scan = this->scan(in, values, sequence);

  Tensor d_scan = d_out, d_values, d_leaving, d_entering;
  kernels::ScalarScanGradients out{.dq = gradients.q,
                                   .dk = gradients.k,
                                   .dv = gradients.v,
                                   .d_log_decay = gradients.log_decay,
                                   .d_initial_state = {}};
  if (options_.normalize) {
    d_scan = exec.empty(f.out.shape());
    kernels::divide_by_last_channel_backward(exec, h.heads, f.out, d_out, d_scan);
    d_values = exec.empty(f.values.shape());
    out.dv = d_values;
  }
  if (d_state != nullptr) {
    if (!d_state->tensors.empty()) {
      d_leaving = options_.normalize ? join_state(exec, d_state->tensors) : d_state->tensors[0];
    }
    d_entering = exec.empty({sequence.count(), h.heads, scan.key, scan.value});
    out.d_initial_state = d_entering;
  }
  kernels::scalar_scan_backward(exec, scan, or_empty(f.entering), d_scan, or_empty(d_leaving), out);
  if (options_.normalize) kernels::drop_last_channel(exec, h.kv_heads, d_values, gradients.v);
  if (d_state != nullptr) {
    d_state->tensors =
        options_.normalize ? split_state(exec, d_entering) : std::vector<Tensor>{d_entering};
  }
}

double ScalarRecurrence::flops_per_token() const {
  constexpr double kChunk = 64;  // the counting of MFU, whatever the kernel chooses
  const auto dk = static_cast<double>(options_.heads.dk), dv = static_cast<double>(options_.heads.dv);
  return static_cast<double>(options_.heads.heads) * (kChunk * (dk + dv) + 4.0 * dk * dv);
}

}  // namespace weft
