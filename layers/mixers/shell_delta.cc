#include "layers/mixers/shell_delta.h"

#include <cmath>

#include "kernels/gates/activation.h"
#include "kernels/rows/elementwise.h"
#include "layers/basic/cast.h"

namespace weft {
namespace {

// Tensor ranks share whole groups: a query head with all value heads that read it.
std::vector<Linear::Part> parts_of(const DeltaRule& r) {
  const int64_t group = r.value_heads / r.heads;
  std::vector<Linear::Part> parts = {{"q_proj", r.heads * r.dk, r.dk},
                                     {"k_proj", r.heads * r.dk, r.dk},
                                     {"v_proj", r.value_heads * r.dv, group * r.dv}};
  if (r.output_gate) parts.push_back({"g_proj", r.value_heads * r.dv, group * r.dv});
  return parts;
}

std::vector<Linear::Part> gates_of(const DeltaRule& r) {
  const int64_t group = r.value_heads / r.heads;
  std::vector<Linear::Part> parts = {{"b_proj", r.value_heads, group}};
  if (r.decay) parts.push_back({"a_proj", r.value_heads, group});
  return parts;
}

std::array<ShellConvs::Channels, 3> channels_of(const DeltaRule& r) {
  return {{{r.heads * r.dk, r.dk},
           {r.heads * r.dk, r.dk},
           {r.value_heads * r.dv, r.value_heads / r.heads * r.dv}}};
}

// One number per head that shapes the decay.
Parameter* head_vector(const Build& build, const DeltaRule& r, const char* name, Init init) {
  if (!r.decay) return nullptr;
  return &build.declare(
      {.name = build.scope + name,
       .global = {r.value_heads},
       .splits = {Split{.dim = 0, .axis = Axis::kTensor, .unit = r.value_heads / r.heads}},
       .init = init,
       .weight_decay = false,
       .f32 = true});
}

}  // namespace

DeltaShell::DeltaShell(const MixerBuild& build, const DeltaRule& rule)
    : rule_(rule),
      compute_(build.compute),
      hidden_(build.hidden),
      widths_{rule.heads * rule.dk, rule.heads * rule.dk, rule.value_heads * rule.dv,
              rule.output_gate ? rule.value_heads * rule.dv : 0},
      project_(build, parts_of(rule), build.hidden,
               {.cut = Linear::Cut::kRows,
                .queries = {0, widths_[kQ]},
                .gate = {qk_width() + widths_[kV], widths_[kGate]}}),
      project_gates_(build, gates_of(rule), build.hidden, {.cut = Linear::Cut::kRows}),
      convs_(build, channels_of(rule), asked(rule.short_conv)),
      a_log_(head_vector(build, rule, "A_log", Init::log_of_uniform(0.0, 16.0))),
      dt_bias_(head_vector(build, rule, "dt_bias", Init::time_step(1e-3, 1e-1))),
      recurrence_({rule.value_heads, rule.heads, rule.dk, rule.dv,
                   1.0f / std::sqrt(static_cast<float>(rule.dk))}),
      norm_(build.declare({.name = build.scope + "o_norm.weight",
                           .global = {rule.dv},
                           .partial_over = {Axis::kTensor},
                           .init = Init::constant(1.0),
                           .weight_decay = false,
                           .f32 = true})),
      out_(build, {{"o_proj", build.hidden}}, rule.value_heads * rule.dv,
           {.init = output_init(build), .cut = Linear::Cut::kColumns}) {}

View DeltaShell::part(const Tensor& rows, Part which) const {
  int64_t begin = 0;
  for (int i = 0; i < which; ++i) begin += widths_[i];
  return widths_[which] == 0 ? View{} : rows.view().columns(begin, widths_[which]);
}

DeltaRecurrence::Inputs DeltaShell::inputs(const Saved& f) const {
  DeltaRecurrence::Inputs in{part(f.qkv, kQ), part(f.qkv, kK), part(f.qkv, kV), f.beta, {}};
  if (rule_.decay) in.log_decay = f.log_decay;
  return in;
}

kernels::HeadNorm DeltaShell::head_norm() const {
  return {
      .heads = rule_.value_heads,
      .epsilon = rule_.norm_epsilon,
      .gate = rule_.output_gate ? kernels::GateActivation::kSilu : kernels::GateActivation::kNone};
}

kernels::HeadDecay DeltaShell::decay_gate(const Saved& f) const {
  return {gate(f.gates, kDecay), a_log_->value, dt_bias_->value};
}

void DeltaShell::plain_silu(Exec& exec, const Saved& f, int64_t begin, int64_t width) const {
  if (convs_.some()) return;
  kernels::activation_forward(exec, kernels::Activation::kSilu,
                              f.projected.view().columns(begin, width),
                              f.qkv.view().columns(begin, width));
}

void DeltaShell::to_unit(Exec& exec, const Saved& f, Part which, const Tensor& inv_norm) const {
  kernels::l2_norm_forward(exec, l2_norm(), part(f.qkv, which), part(f.qkv, which), inv_norm);
}

void DeltaShell::finish_keys(Exec& exec, ShellConvs::Pass& convs, Saved& f,
                             SavedStack& saved) const {
  convs.finish_keys_and_values(exec, saved);
  plain_silu(exec, f, widths_[kQ], widths_[kK] + widths_[kV]);
  f.k_inv_norm = exec.empty({f.qkv.shape()[0], rule_.heads});
  to_unit(exec, f, kK, f.k_inv_norm);
}

void DeltaShell::finish_queries(Exec& exec, const Tensor& x, ShellConvs::Pass& convs, Saved& f,
                                SavedStack& saved) const {
  project_.finish_queries(exec, x, f.projected);
  convs.start_queries(exec);
  project_.finish_gate(exec, x, f.projected);
  convs.finish_queries(exec, saved);
  plain_silu(exec, f, 0, widths_[kQ]);
  f.q_inv_norm = exec.empty({f.qkv.shape()[0], rule_.heads});
  to_unit(exec, f, kQ, f.q_inv_norm);
}

void DeltaShell::open_gates(Exec& exec, Saved& f) const {
  f.beta = exec.empty({f.gates.shape()[0], rule_.value_heads});
  kernels::activation_forward(exec, kernels::Activation::kSigmoid, gate(f.gates, kBeta), f.beta);
  if (rule_.beta_factor != 1.0f) kernels::scale(exec, f.beta, rule_.beta_factor, f.beta);
  if (!rule_.decay) return;
  f.log_decay = exec.empty(f.beta.shape());
  kernels::head_decay_forward(exec, decay_gate(f), f.log_decay);
}

void DeltaShell::open_gates_backward(Exec& exec, const Saved& f, const Tensor& d_beta,
                                     const Tensor& d_log_decay, const Tensor& d) const {
  if (rule_.beta_factor != 1.0f) kernels::scale(exec, d_beta, rule_.beta_factor, d_beta);
  kernels::activation_backward(exec, kernels::Activation::kSigmoid, gate(f.gates, kBeta), d_beta,
                               gate(d, kBeta));
  if (!rule_.decay) return;
  kernels::head_decay_backward(exec, decay_gate(f), d_log_decay, gate(d, kDecay), a_log_->grad,
                               dt_bias_->grad);
}

Tensor DeltaShell::forward(Exec& exec, const Tensor& x, const MixerContext& context,
                           SavedStack& saved) const {
  const Sequence& sequence = context.sequence;
  Saved f;
  f.x = x;
  f.projected = project_.begin_forward(exec, x, compute_, saved);
  ShellConvs::Pass convs(convs_, exec, f.projected, context);
  f.qkv = convs_.some() ? convs.rows() : exec.empty({sequence.tokens(), convs_.width()}, compute_);
  f.gates = project_gates_.forward(exec, x, DType::kF32, saved);
  open_gates(exec, f);
  finish_keys(exec, convs, f, saved);
  f.out = recurrence_.forward(exec, inputs(f), sequence, context.part(kRecurrence), saved,
                              [&] { finish_queries(exec, x, convs, f, saved); });
  f.inv_rms = exec.empty({sequence.tokens(), rule_.value_heads});
  const Tensor y = exec.empty(f.out.shape(), compute_);
  kernels::head_norm_forward(exec, head_norm(), f.out, part(f.projected, kGate), norm_.value, y,
                             f.inv_rms);
  saved.push(std::move(f));
  return out_.forward(exec, y, DType::kF32, saved);
}

Tensor DeltaShell::backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                            SavedStack& saved) const {
  const Sequence& sequence = context.sequence;
  const Tensor d_y = out_.backward(exec, in_type(exec, dy, compute_), DType::kF32, saved);
  const Saved f = saved.pop<Saved>();
  const Tensor d = exec.empty(f.projected.shape(), compute_);
  const Tensor d_gates = exec.empty(f.gates.shape(), compute_);
  const Tensor d_out = exec.empty(f.out.shape());
  kernels::head_norm_backward(exec, head_norm(), d_y, f.out, part(f.projected, kGate), norm_.value,
                              f.inv_rms, d_out, part(d, kGate), norm_.grad);
  project_.begin_backward(exec, d, f.x, saved);
  const Tensor d_qkv = exec.empty(f.qkv.shape(), compute_), d_beta = exec.empty(f.beta.shape());
  Tensor d_log_decay;
  DeltaRecurrence::Gradients gradients{
      part(d_qkv, kQ), part(d_qkv, kK), part(d_qkv, kV), d_beta, {}};
  if (rule_.decay) {
    d_log_decay = exec.empty(f.beta.shape());
    gradients.log_decay = d_log_decay;
  }
  recurrence_.backward(exec, inputs(f), sequence, d_out, context.part(kRecurrence), gradients,
                       saved);
  const auto from_unit = [&](Part which, const Tensor& inv_norm) {
    kernels::l2_norm_backward(exec, l2_norm(), part(d_qkv, which), part(f.qkv, which), inv_norm,
                              part(d_qkv, which));
  };
  from_unit(kQ, f.q_inv_norm);
  from_unit(kK, f.k_inv_norm);
  auto convs = convs_.backward(exec, f.projected, d_qkv, d, context, saved);
  open_gates_backward(exec, f, d_beta, d_log_decay, d_gates);
  const Tensor dx_gates = project_gates_.backward(exec, d_gates, DType::kF32, saved);
  if (convs) {
    convs->finish(exec);
  } else {
    kernels::activation_backward(exec, kernels::Activation::kSilu,
                                 f.projected.view().columns(0, convs_.width()), d_qkv,
                                 d.view().columns(0, convs_.width()));
  }
  const Tensor dx = project_.backward(exec, d, DType::kF32, saved);
  kernels::add(exec, dx, dx_gates, dx);
  return dx;
}

double DeltaShell::flops_per_token(int64_t) const {
  return 2.0 * static_cast<double>(hidden_) *
             static_cast<double>(project_.out() + project_gates_.out() +
                                 rule_.value_heads * rule_.dv) +
         convs_.flops_per_token() + recurrence_.flops_per_token();
}

}  // namespace weft
