#include "layers/mixers/shell.h"

#include <cstring>

#include "kernels/elementwise.h"
#include "kernels/norm.h"
#include "kernels/normalizer.h"
#include "kernels/rope.h"
#include "kernels/scalar_scan.h"

namespace weft {
namespace {

constexpr float kHeadNormEpsilon = 1e-5f;

std::vector<Linear::Part> parts_of(const ScalarRule& rule) {
  const HeadOptions& h = rule.heads;
  std::vector<Linear::Part> parts = {{"q_proj", h.heads * h.dk, h.dk},
                                     {"k_proj", h.kv_heads * h.dk, h.dk},
                                     {"v_proj", h.kv_heads * h.dv, h.dv}};
  if (rule.output_gate) parts.push_back({"g_proj", h.heads * h.dv, h.dv});
  return parts;
}

// M [n, heads, dk, dv] and z [n, heads, dk] as one state [n, heads, dk, dv + 1] of the widened scan.
Tensor join_state(Exec& exec, const Tensor& m, const Tensor& z) {
  const Shape& s = m.shape();
  const Tensor wide = exec.empty({s[0], s[1], s[2], s[3] + 1});
  kernels::copy(exec, m, wide.view().columns(0, s[3]));
  kernels::copy(exec, z.reshaped({s[0], s[1], s[2], 1}), wide.view().columns(s[3], 1));
  return wide;
}

std::vector<Tensor> split_state(Exec& exec, const Tensor& wide) {
  const Shape& s = wide.shape();
  const Tensor m = exec.empty({s[0], s[1], s[2], s[3] - 1}), z = exec.empty({s[0], s[1], s[2]});
  kernels::copy(exec, wide.view().columns(0, s[3] - 1), m);
  kernels::copy(exec, wide.view().columns(s[3] - 1, 1), z.reshaped({s[0], s[1], s[2], 1}));
  return {m, z};
}

ConstView or_empty(const Tensor& t) { return t.defined() ? ConstView(t) : ConstView{}; }

}  // namespace

ScalarShell::ScalarShell(const MixerBuild& build, ScalarRule rule)
    : rule_(std::move(rule)),
      compute_(build.compute),
      hidden_(build.hidden),
      columns_{rule_.heads.heads * rule_.heads.dk, rule_.heads.kv_heads * rule_.heads.dk,
               rule_.heads.kv_heads * rule_.heads.dv,
               rule_.output_gate ? rule_.heads.heads * rule_.heads.dv : 0},
      project_(build, parts_of(rule_), build.hidden, {.cut = Linear::Cut::kRows}),
      norm_(build.store.declare({.name = build.scope + "o_norm.weight",
                                 .global = {rule_.heads.dv},
                                 .partial_over = {Axis::kTensor},
                                 .init = Init::constant(1.0),
                                 .weight_decay = false,
                                 .f32 = true})),
      out_(build, {{"o_proj", build.hidden}}, rule_.heads.heads * rule_.heads.dv,
           {.init = output_init(build), .cut = Linear::Cut::kColumns}) {
  if (!rule_.log_decay.empty()) {
    log_decay_ = Tensor::borrow(rule_.log_decay.data(), {rule_.heads.heads}, DType::kF32);
  }
}

View ScalarShell::part(const Tensor& projected, int which) const {
  const int64_t widths[] = {columns_.q, columns_.k, columns_.v, columns_.gate};
  int64_t begin = 0;
  for (int i = 0; i < which; ++i) begin += widths[i];
  return projected.view().columns(begin, widths[which]);
}

namespace {

// The scan's inputs: q and k from `qk` (after the feature map) where defined, else as projected.
kernels::ScalarScan scan_of(const ScalarRule& rule, const Sequence& sequence, ConstView q, ConstView k,
                            ConstView v, ConstView log_decay) {
  return {.q = q,
          .k = k,
          .v = v,
          .log_decay = log_decay,
          .documents = sequence.documents,
          .heads = rule.heads.heads,
          .kv_heads = rule.heads.kv_heads,
          .key = rule.heads.dk,
          .value = rule.heads.dv + (rule.normalize ? 1 : 0),
          .scale = rule.scale};
}

void rotate(Exec& exec, const ScalarRule& rule, const Sequence& sequence, View q, View k,
            kernels::Rope::Direction direction) {
  kernels::Rope rope{.heads = rule.heads.heads,
                     .head_width = rule.heads.dk,
                     .rotary_width = rule.heads.dk,
                     .base = rule.rope_base,
                     .direction = direction};
  kernels::rope(exec, rope, sequence.positions, q);
  rope.heads = rule.heads.kv_heads;
  kernels::rope(exec, rope, sequence.positions, k);
}

}  // namespace

void ScalarShell::mix(Exec& exec, const Sequence& sequence, MixerState* state, Saved& f) const {
  const HeadOptions& h = rule_.heads;
  const int64_t tokens = sequence.tokens(), documents = sequence.count();
  ConstView q = part(f.projected, 0), k = part(f.projected, 1), v = part(f.projected, 2);
  if (f.qk.defined()) {
    q = f.qk.view().columns(0, columns_.q);
    k = f.qk.view().columns(columns_.q, columns_.k);
  }
  if (rule_.normalize) {
    f.wide_values = exec.empty({tokens, h.kv_heads * (h.dv + 1)}, compute_);
    kernels::append_ones(exec, h.kv_heads, v, f.wide_values);
    v = f.wide_values;
  }
  const kernels::ScalarScan scan = scan_of(rule_, sequence, q, k, v, or_empty(log_decay_));
  Tensor leaving;
  if (state != nullptr) {
    leaving = exec.empty({documents, h.heads, scan.key, scan.value});
    if (!state->tensors.empty()) {
      f.entering = rule_.normalize ? join_state(exec, state->tensors[0], state->tensors[1])
                                   : state->tensors[0];
    }
  }
  f.out = exec.empty({tokens, h.heads * h.dv}, compute_);
  if (rule_.normalize) f.wide_out = exec.empty({tokens, h.heads * (h.dv + 1)});
  kernels::scalar_scan_forward(exec, scan, or_empty(f.entering),
                               rule_.normalize ? f.wide_out : f.out,
                               state != nullptr ? leaving.view() : View{});
  if (rule_.normalize) kernels::divide_by_last_channel(exec, h.heads, f.wide_out, f.out);
  if (state != nullptr) {
    state->tensors = rule_.normalize ? split_state(exec, leaving) : std::vector<Tensor>{leaving};
  }
}

Tensor ScalarShell::forward(Exec& exec, const Tensor& x, const Sequence& sequence, MixerState* state,
                            SavedStack& saved) const {
  const HeadOptions& h = rule_.heads;
  const int64_t tokens = sequence.tokens();
  Saved f;
  f.projected = project_.forward(exec, x, compute_, saved);
  if (rule_.rope) {
    rotate(exec, rule_, sequence, part(f.projected, 0), part(f.projected, 1),
           kernels::Rope::Direction::kForward);
  }
  if (rule_.feature_map != kernels::Activation::kIdentity) {
    f.qk = exec.empty({tokens, columns_.q + columns_.k}, compute_);
    kernels::activation_forward(exec, rule_.feature_map,
                                f.projected.view().columns(0, columns_.q + columns_.k), f.qk);
  }
  mix(exec, sequence, state, f);
  const Tensor y = exec.empty({tokens, h.heads * h.dv}, compute_);
  f.inv_rms = exec.empty({tokens, h.heads});
  const kernels::HeadNorm norm{.heads = h.heads,
                               .epsilon = kHeadNormEpsilon,
                               .gate = rule_.output_gate ? kernels::GateActivation::kSilu
                                                         : kernels::GateActivation::kNone};
  kernels::head_norm_forward(exec, norm, f.out,
                             rule_.output_gate ? part(f.projected, 3) : View{}, norm_.value, y,
                             f.inv_rms);
  saved.push(std::move(f));
  return out_.forward(exec, y, DType::kF32, saved);
}

void ScalarShell::mix_backward(Exec& exec, const Sequence& sequence, const Tensor& d_out,
                               MixerState* d_state, const Saved& f, const Tensor& d_projected) const {
  const HeadOptions& h = rule_.heads;
  const int64_t documents = sequence.count();
  ConstView q = part(f.projected, 0), k = part(f.projected, 1);
  if (f.qk.defined()) {
    q = f.qk.view().columns(0, columns_.q);
    k = f.qk.view().columns(columns_.q, columns_.k);
  }
  const ConstView v = rule_.normalize ? ConstView(f.wide_values) : ConstView(part(f.projected, 2));
  const kernels::ScalarScan scan = scan_of(rule_, sequence, q, k, v, or_empty(log_decay_));

  Tensor d_scan = d_out, d_values, d_leaving, d_entering;
  kernels::ScalarScanGradients gradients{.dq = part(d_projected, 0),
                                         .dk = part(d_projected, 1),
                                         .dv = part(d_projected, 2),
                                         .d_log_decay = {},
                                         .d_initial_state = {}};
  if (rule_.normalize) {
    d_scan = exec.empty(f.wide_out.shape());
    kernels::divide_by_last_channel_backward(exec, h.heads, f.wide_out, d_out, d_scan);
    d_values = exec.empty(f.wide_values.shape());
    gradients.dv = d_values;
  }
  if (d_state != nullptr) {
    if (!d_state->tensors.empty()) {
      d_leaving = rule_.normalize ? join_state(exec, d_state->tensors[0], d_state->tensors[1])
                                  : d_state->tensors[0];
    }
    d_entering = exec.empty({documents, h.heads, scan.key, scan.value});
    gradients.d_initial_state = d_entering;
  }
  kernels::scalar_scan_backward(exec, scan, or_empty(f.entering), d_scan, or_empty(d_leaving),
                                gradients);
  if (rule_.normalize) kernels::drop_last_channel(exec, h.kv_heads, d_values, part(d_projected, 2));
  if (d_state != nullptr) {
    d_state->tensors = rule_.normalize ? split_state(exec, d_entering) : std::vector<Tensor>{d_entering};
  }
}

Tensor ScalarShell::backward(Exec& exec, const Tensor& dy, const Sequence& sequence,
                             MixerState* d_state, SavedStack& saved) const {
  const HeadOptions& h = rule_.heads;
  const int64_t tokens = sequence.tokens();
  Tensor dyc = dy;
  if (compute_ != DType::kF32) {
    dyc = exec.empty(dy.shape(), compute_);
    kernels::copy(exec, dy, dyc);
  }
  const Tensor d_y = out_.backward(exec, dyc, compute_, saved);
  const Saved f = saved.pop<Saved>();
  const Tensor d_projected = exec.empty(f.projected.shape(), compute_);
  const Tensor d_out = exec.empty({tokens, h.heads * h.dv}, compute_);
  const kernels::HeadNorm norm{.heads = h.heads,
                               .epsilon = kHeadNormEpsilon,
                               .gate = rule_.output_gate ? kernels::GateActivation::kSilu
                                                         : kernels::GateActivation::kNone};
  kernels::head_norm_backward(exec, norm, d_y, f.out,
                              rule_.output_gate ? part(f.projected, 3) : View{}, norm_.value,
                              f.inv_rms, d_out, rule_.output_gate ? part(d_projected, 3) : View{},
                              norm_.grad);
  mix_backward(exec, sequence, d_out, d_state, f, d_projected);
  const int64_t qk = columns_.q + columns_.k;
  if (rule_.feature_map != kernels::Activation::kIdentity) {
    const View d_qk = d_projected.view().columns(0, qk);
    kernels::activation_backward(exec, rule_.feature_map, f.projected.view().columns(0, qk), d_qk, d_qk);
  }
  if (rule_.rope) {
    rotate(exec, rule_, sequence, part(d_projected, 0), part(d_projected, 1),
           kernels::Rope::Direction::kBackward);
  }
  return project_.backward(exec, d_projected, DType::kF32, saved);
}

double ScalarShell::flops_per_token(int64_t) const {
  constexpr double kChunk = 64;  // the counting of MFU, whatever the kernel chooses
  const HeadOptions& h = rule_.heads;
  const auto dk = static_cast<double>(h.dk), dv = static_cast<double>(h.dv);
  const double projections = static_cast<double>(project_.out() + h.heads * h.dv);
  return 2.0 * static_cast<double>(hidden_) * projections +
         static_cast<double>(h.heads) * (kChunk * (dk + dv) + 4.0 * dk * dv);
}

}  // namespace weft
