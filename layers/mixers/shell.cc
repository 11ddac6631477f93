#include "layers/mixers/shell.h"

#include "kernels/gates/sigmoid_gate.h"
#include "kernels/gates/ssm.h"
#include "layers/basic/cast.h"

namespace weft {
namespace {

std::vector<Linear::Part> parts_of(const ScalarRule& rule) {
  const HeadOptions& h = rule.heads;
  std::vector<Linear::Part> parts = {
      {"q_proj", h.heads * h.dk, h.dk}, kv_part(h, "k_proj", h.dk), kv_part(h, "v_proj", h.dv)};
  if (rule.output_gate) parts.push_back({"g_proj", h.heads * h.dv, h.dv});
  return parts;
}

}  // namespace

ScalarShell::ScalarShell(const MixerBuild& build, ScalarRule rule)
    : rule_(std::move(rule)),
      compute_(build.compute),
      hidden_(build.hidden),
      widths_{rule_.heads.heads * rule_.heads.dk, rule_.heads.kv_heads * rule_.heads.dk,
              rule_.heads.kv_heads * rule_.heads.dv,
              rule_.output_gate ? rule_.heads.heads * rule_.heads.dv : 0},
      project_(build, parts_of(rule_), build.hidden,
               {.cut = Linear::Cut::kRows,
                .queries = {0, widths_[kQ]},
                .gate = {widths_[kQ] + widths_[kK] + widths_[kV], widths_[kGate]}}),
      recurrence_({rule_.heads, rule_.scale, rule_.normalize}),
      norm_(rule_.joint_norm ? nullptr
                             : &build.declare({.name = build.scope + "o_norm.weight",
                                               .global = {rule_.heads.dv},
                                               .partial_over = {Axis::kTensor},
                                               .init = Init::constant(1.0),
                                               .weight_decay = false,
                                               .f32 = true})),
      joint_norm_(rule_.joint_norm ? std::make_unique<WideNorm>(
                                         build, "o_norm.weight", rule_.heads.heads * rule_.heads.dv,
                                         rule_.heads.dv, 1, rule_.norm_epsilon)
                                   : nullptr),
      out_(build, {{"o_proj", build.hidden}}, rule_.heads.heads * rule_.heads.dv,
           {.init = output_init(build), .cut = Linear::Cut::kColumns}),
      convs_(build, rule_.heads, asked(rule_.short_conv)) {}

View ScalarShell::part(const Tensor& projected, Part which) const {
  int64_t begin = 0;
  for (int i = 0; i < which; ++i) begin += widths_[i];
  return widths_[which] == 0 ? View{} : projected.view().columns(begin, widths_[which]);
}

ScalarRecurrence::Inputs ScalarShell::inputs(const Saved& f) const {
  ScalarRecurrence::Inputs in{part(f.qkv, kQ), part(f.qkv, kK), part(f.qkv, kV), {}};
  if (f.mapped.defined()) {
    in.q = part(f.mapped, kQ), in.k = part(f.mapped, kK);
    if (rule_.map_values) in.v = part(f.mapped, kV);
  }
  if (!rule_.log_decay.empty()) {
    in.log_decay = {
        rule_.log_decay.data(), {rule_.heads.heads}, rule_.heads.heads, DType::kF32, {}};
  }
  return in;
}

kernels::HeadNorm ScalarShell::head_norm() const {
  return {.heads = rule_.heads.heads,
          .epsilon = rule_.norm_epsilon,
          .gate = rule_.output_gate ? rule_.gate : kernels::GateActivation::kNone};
}

void ScalarShell::rotate(Exec& exec, const Sequence& sequence, View rows, int64_t heads,
                         kernels::Rope::Direction direction) const {
  const kernels::Rope rope{.heads = heads,
                           .head_width = rule_.heads.dk,
                           .rotary_width = rule_.heads.dk,
                           .base = rule_.rope_base,
                           .direction = direction};
  kernels::rope(exec, rope, sequence.positions, rows);
}

void ScalarShell::prepare(Exec& exec, const Sequence& sequence, const Saved& f, Part which) const {
  const bool queries = which == kQ;
  if (rule_.rope) {
    rotate(exec, sequence, part(f.qkv, which), queries ? rule_.heads.heads : rule_.heads.kv_heads,
           kernels::Rope::Direction::kForward);
  }
  if (!maps()) return;
  const int64_t begin = queries ? 0 : widths_[kQ],
                width = queries ? widths_[kQ] : mapped_width() - widths_[kQ];
  kernels::activation_forward(exec, rule_.feature_map, f.qkv.view().columns(begin, width),
                              f.mapped.view().columns(begin, width));
}

Tensor ScalarShell::finish(Exec& exec, Saved& f) const {
  const View gate = part(f.projected, kGate);
  const Tensor y = exec.empty(f.out.shape(), compute_);
  if (!joint_norm_) {
    f.inv_rms = exec.empty({f.out.shape()[0], rule_.heads.heads});
    kernels::head_norm_forward(exec, head_norm(), f.out, gate, norm_->value, y, f.inv_rms);
    return y;
  }
  f.inv_rms = joint_norm_->forward(exec, f.out, y);
  if (!rule_.output_gate) return y;
  f.normed = y;
  const Tensor gated = exec.empty(y.shape(), compute_);
  if (rule_.gate == kernels::GateActivation::kSilu) {
    kernels::silu_gate_forward(exec, y, gate, gated);
  } else {
    kernels::sigmoid_gate_forward(exec, y, gate, gated);
  }
  return gated;
}

Tensor ScalarShell::finish_backward(Exec& exec, const Saved& f, const Tensor& dy,
                                    View d_gate) const {
  const View gate = part(f.projected, kGate);
  const Tensor d_out = exec.empty(f.out.shape(), compute_);
  if (!joint_norm_) {
    kernels::head_norm_backward(exec, head_norm(), dy, f.out, gate, norm_->value, f.inv_rms, d_out,
                                d_gate, norm_->grad);
    return d_out;
  }
  if (f.normed.defined() && rule_.gate == kernels::GateActivation::kSilu) {
    kernels::silu_gate_backward(exec, f.normed, gate, dy, dy, d_gate);
  } else if (f.normed.defined()) {
    kernels::sigmoid_gate_backward(exec, f.normed, gate, dy, dy, d_gate);
  }
  const Tensor wide = exec.empty(f.out.shape());
  joint_norm_->backward(exec, in_type(exec, dy, DType::kF32), f.out, f.inv_rms, wide);
  kernels::copy(exec, wide, d_out);
  return d_out;
}

Tensor ScalarShell::forward(Exec& exec, const Tensor& x, const MixerContext& context,
                            SavedStack& saved) const {
  const Sequence& sequence = context.sequence;
  Saved f;
  f.x = x;
  f.projected = project_.begin_forward(exec, x, compute_, saved);
  ShellConvs::Pass convs(convs_, exec, f.projected, context);
  f.qkv = convs.rows();
  if (maps()) f.mapped = exec.empty({sequence.tokens(), mapped_width()}, compute_);
  convs.finish_keys_and_values(exec, saved);
  prepare(exec, sequence, f, kK);
  f.out = recurrence_.forward(exec, inputs(f), sequence, context.part(kRecurrence), saved, [&] {
    project_.finish_queries(exec, x, f.projected);
    convs.start_queries(exec);
    project_.finish_gate(exec, x, f.projected);
    convs.finish_queries(exec, saved);
    prepare(exec, sequence, f, kQ);
  });
  const Tensor y = finish(exec, f);
  saved.push(std::move(f));
  return out_.forward(exec, y, DType::kF32, saved);
}

Tensor ScalarShell::backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                             SavedStack& saved) const {
  const Sequence& sequence = context.sequence;
  const Tensor d_y = out_.backward(exec, in_type(exec, dy, compute_), compute_, saved);
  const Saved f = saved.pop<Saved>();
  const Tensor d = exec.empty(f.projected.shape(), compute_);
  const Tensor d_out = finish_backward(exec, f, d_y, part(d, kGate));
  project_.begin_backward(exec, d, f.x, saved);
  const Tensor d_qkv = convs_.place_for_dy(exec, d);
  recurrence_.backward(exec, inputs(f), sequence, d_out, context.part(kRecurrence),
                       {part(d_qkv, kQ), part(d_qkv, kK), part(d_qkv, kV), {}}, saved);
  if (maps()) {
    const View d_mapped = d_qkv.view().columns(0, mapped_width());
    kernels::activation_backward(exec, rule_.feature_map, f.qkv.view().columns(0, mapped_width()),
                                 d_mapped, d_mapped);
  }
  if (rule_.rope) {
    const auto back = kernels::Rope::Direction::kBackward;
    rotate(exec, sequence, part(d_qkv, kQ), rule_.heads.heads, back);
    rotate(exec, sequence, part(d_qkv, kK), rule_.heads.kv_heads, back);
  }
  if (auto convs = convs_.backward(exec, f.projected, d_qkv, d, context, saved)) {
    convs->finish(exec);
  }
  return project_.backward(exec, d, DType::kF32, saved);
}

double ScalarShell::flops_per_token(int64_t) const {
  return 2.0 * static_cast<double>(hidden_) *
             static_cast<double>(project_.out() + rule_.heads.heads * rule_.heads.dv) +
         convs_.flops_per_token() + recurrence_.flops_per_token();
}

}  // namespace weft
