#include "layers/mixers/shell_descent.h"

#include <cmath>

#include "kernels/gates/activation.h"
#include "kernels/rows/elementwise.h"
#include "kernels/rows/reductions.h"
#include "layers/basic/cast.h"

namespace weft {
namespace {

std::vector<Linear::Part> parts_of(const DescentRule& r) {
  std::vector<Linear::Part> parts = {{"q_proj", r.heads * r.dk, r.dk},
                                     {"k_proj", r.heads * r.dk, r.dk},
                                     {"v_proj", r.heads * r.dv, r.dv}};
  if (r.output_gate) parts.push_back({"g_proj", r.heads * r.dv, r.dv});
  return parts;
}

std::vector<Linear::Part> gates_of(const DescentRule& r) {
  std::vector<Linear::Part> parts;
  for (const DescentRule::Gate& gate : r.gates) parts.push_back({gate.name, r.heads});
  return parts;
}

std::vector<Parameter*> biases_of(const Build& build, const DescentRule& r) {
  std::vector<Parameter*> biases;
  for (const DescentRule::Gate& gate : r.gates) {
    biases.push_back(&build.declare({.name = build.scope + gate.name + ".bias",
                                     .global = {r.heads},
                                     .splits = {Split{.dim = 0, .axis = Axis::kTensor}},
                                     .init = Init::constant(gate.bias),
                                     .weight_decay = false,
                                     .f32 = true}));
  }
  return biases;
}

}  // namespace

DescentShell::DescentShell(const MixerBuild& build, const DescentRule& rule)
    : rule_(rule),
      compute_(build.compute),
      hidden_(build.hidden),
      project_(build, parts_of(rule), build.hidden,
               {.cut = Linear::Cut::kRows,
                .queries = {0, rule.heads * rule.dk},
                .gate = {qk_width() + rule.heads * rule.dv,
                         rule.output_gate ? rule.heads * rule.dv : 0}}),
      project_gates_(build, gates_of(rule), build.hidden, {.cut = Linear::Cut::kRows}),
      biases_(biases_of(build, rule)),
      recurrence_({.heads = rule.heads,
                   .dk = rule.dk,
                   .dv = rule.dv,
                   .scale = 1.0f / std::sqrt(static_cast<float>(rule.dk)),
                   .mini_batch = rule.mini_batch,
                   .momentum = rule.gates.size() > 1}),
      norm_(build.declare({.name = build.scope + "o_norm.weight",
                           .global = {rule.dv},
                           .partial_over = {Axis::kTensor},
                           .init = Init::constant(1.0),
                           .weight_decay = false,
                           .f32 = true})),
      out_(build, {{"o_proj", build.hidden}}, rule.heads * rule.dv,
           {.init = output_init(build), .cut = Linear::Cut::kColumns}) {
  if (rule.inner_norm) {
    inner_norm_.emplace(build, InnerNorm::Options{rule.heads, rule.dk, rule.mini_batch});
  }
  if (rule.inner_norm || rule.gates.size() > 1 || rule.mini_batch > 1) return;
  delta_.emplace(DeltaRecurrence::Options{rule.heads, rule.heads, rule.dk, rule.dv,
                                          1.0f / std::sqrt(static_cast<float>(rule.dk))});
}

View DescentShell::part(const Tensor& rows, Part which) const {
  const int64_t qk = rule_.heads * rule_.dk, v = rule_.heads * rule_.dv;
  const int64_t begins[] = {0, qk, 2 * qk, 2 * qk + v}, widths[] = {qk, qk, v, v};
  if (which == kGate && !rule_.output_gate) return {};
  return rows.view().columns(begins[which], widths[which]);
}

MomentumInputs DescentShell::inputs(const Saved& f) const {
  return {part(f.qk, kQ),   part(f.qk, kK),   part(f.projected, kV),
          gate(f.gates, 0), gate(f.gates, 1), gate(f.gates, 2)};
}

kernels::HeadNorm DescentShell::head_norm() const {
  return {
      .heads = rule_.heads,
      .epsilon = kHeadNormEpsilon,
      .gate = rule_.output_gate ? kernels::GateActivation::kSilu : kernels::GateActivation::kNone};
}

void DescentShell::open_gates(Exec& exec, const Tensor& x, Saved& f, SavedStack& saved) const {
  f.logits = project_gates_.forward(exec, x, DType::kF32, saved);
  for (size_t i = 0; i < biases_.size(); ++i) {
    kernels::add_bias(exec, biases_[i]->value, gate(f.logits, i));
  }
  f.gates = exec.empty(f.logits.shape());
  kernels::activation_forward(exec, kernels::Activation::kSigmoid, f.logits, f.gates);
  if (rule_.rate != 1.0f) kernels::scale(exec, gate(f.gates, 0), rule_.rate, gate(f.gates, 0));
}

Tensor DescentShell::descend(Exec& exec, const Saved& f, const MixerContext& context,
                             const std::function<void()>& meanwhile, SavedStack& saved) const {
  if (inner_norm_) {
    return inner_norm_->forward(
        exec, {part(f.qk, kQ), part(f.qk, kK), part(f.projected, kV), gate(f.gates, 0)}, context,
        meanwhile, saved);
  }
  const MomentumInputs in = inputs(f);
  State* state = context.part(kRecurrence);
  if (!delta_) return recurrence_.forward(exec, in, context.sequence, state, saved, meanwhile);
  return delta_->forward(exec, {in.q, in.k, in.v, in.theta, {}}, context.sequence, state, saved,
                         meanwhile);
}

void DescentShell::descend_backward(Exec& exec, const Saved& f, const Tensor& d_out,
                                    const MixerContext& context, const MomentumGradients& d,
                                    SavedStack& saved) const {
  if (inner_norm_) {
    inner_norm_->backward(exec,
                          {part(f.qk, kQ), part(f.qk, kK), part(f.projected, kV), gate(f.gates, 0)},
                          d_out, context, {d.q, d.k, d.v, d.theta}, saved);
    return;
  }
  const MomentumInputs in = inputs(f);
  State* d_state = context.part(kRecurrence);
  if (!delta_) return recurrence_.backward(exec, in, context.sequence, d_out, d_state, d, saved);
  delta_->backward(exec, {in.q, in.k, in.v, in.theta, {}}, context.sequence, d_out, d_state,
                   {d.q, d.k, d.v, d.theta, {}}, saved);
}

Tensor DescentShell::to_unit(Exec& exec, const Saved& f, Part which) const {
  const Tensor inv_norm = exec.empty({f.qk.shape()[0], rule_.heads});
  kernels::l2_norm_forward(exec, l2_norm(), part(f.projected, which), part(f.qk, which), inv_norm);
  return inv_norm;
}

Tensor DescentShell::forward(Exec& exec, const Tensor& x, const MixerContext& context,
                             SavedStack& saved) const {
  const Sequence& sequence = context.sequence;
  Saved f;
  f.x = x;
  f.projected = project_.begin_forward(exec, x, compute_, saved);
  open_gates(exec, x, f, saved);
  // Descent feeds what it reads back into what it writes: its keys are not rounded once more.
  f.qk = exec.empty({sequence.tokens(), qk_width()}, delta_ ? compute_ : DType::kF32);
  f.k_inv_norm = to_unit(exec, f, kK);
  const auto queries_and_gate = [&] {
    project_.finish_queries(exec, x, f.projected);
    f.q_inv_norm = to_unit(exec, f, kQ);
    project_.finish_gate(exec, x, f.projected);
  };
  f.out = descend(exec, f, context, queries_and_gate, saved);
  f.inv_rms = exec.empty({sequence.tokens(), rule_.heads});
  const Tensor y = exec.empty(f.out.shape(), compute_);
  kernels::head_norm_forward(exec, head_norm(), f.out, part(f.projected, kGate), norm_.value, y,
                             f.inv_rms);
  saved.push(std::move(f));
  return out_.forward(exec, y, DType::kF32, saved);
}

Tensor DescentShell::backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                              SavedStack& saved) const {
  const Tensor d_y = out_.backward(exec, in_type(exec, dy, compute_), DType::kF32, saved);
  const Saved f = saved.pop<Saved>();
  const Tensor d = exec.empty(f.projected.shape(), compute_);
  const Tensor d_out = exec.empty(f.out.shape());
  kernels::head_norm_backward(exec, head_norm(), d_y, f.out, part(f.projected, kGate), norm_.value,
                              f.inv_rms, d_out, part(d, kGate), norm_.grad);
  project_.begin_backward(exec, d, f.x, saved);
  const Tensor d_gates = exec.empty(f.gates.shape());
  const Tensor d_qk = exec.empty(f.qk.shape());  // f32: most of it cancels along q and k
  descend_backward(exec, f, d_out, context,
                   {part(d_qk, kQ), part(d_qk, kK), part(d, kV), gate(d_gates, 0), gate(d_gates, 1),
                    gate(d_gates, 2)},
                   saved);
  kernels::l2_norm_backward(exec, l2_norm(), part(d_qk, kQ), part(f.qk, kQ), f.q_inv_norm,
                            part(d, kQ));
  kernels::l2_norm_backward(exec, l2_norm(), part(d_qk, kK), part(f.qk, kK), f.k_inv_norm,
                            part(d, kK));
  if (rule_.rate != 1.0f) kernels::scale(exec, gate(d_gates, 0), rule_.rate, gate(d_gates, 0));
  kernels::activation_backward(exec, kernels::Activation::kSigmoid, f.logits, d_gates, d_gates);
  for (size_t i = 0; i < biases_.size(); ++i) {
    kernels::column_sum(exec, gate(d_gates, i), biases_[i]->grad);
  }
  const Tensor dx_gates =
      project_gates_.backward(exec, in_type(exec, d_gates, compute_), DType::kF32, saved);
  const Tensor dx = project_.backward(exec, d, DType::kF32, saved);
  kernels::add(exec, dx, dx_gates, dx);
  return dx;
}

double DescentShell::flops_per_token(int64_t) const {
  return 2.0 * static_cast<double>(hidden_) *
             static_cast<double>(project_.out() + project_gates_.out() + rule_.heads * rule_.dv) +
         (inner_norm_ ? inner_norm_->flops_per_token()
          : delta_    ? delta_->flops_per_token()
                      : recurrence_.flops_per_token());
}

}  // namespace weft
