#include <cmath>
#include <optional>

#include "kernels/activation.h"
#include "kernels/head_decay.h"
#include "kernels/l2_norm.h"
#include "layers/memory/inner_rule.h"
#include "layers/recurrence/delta.h"

namespace weft {
namespace {

using kernels::Write;

Parameter* head_vector(const InnerBuild& b, InnerDecay decay, const char* name, Init init) {
  if (decay == InnerDecay::kNo) return nullptr;
  return &b.build.declare({.name = b.build.scope + name,
                           .global = {b.heads},
                           .splits = {Split{.dim = 0, .axis = Axis::kTensor}},
                           .init = init,
                           .weight_decay = false,
                           .f32 = true});
}

MemoryLinear::Options gate_of(const InnerBuild& b, const char* name, const char* shared_name) {
  return {
      .name = name, .shared_name = shared_name, .out = b.heads, .in = b.build.hidden, .unit = 1};
}

// Memories of the delta rule: keys and queries of length one, beta = sigmoid(b_proj x) and, with
// decay, g = -e^{A_log} softplus(a_proj x + dt_bias). The memories share A_log and dt_bias.
class InnerDelta final : public InnerRule {
 public:
  InnerDelta(const InnerBuild& b, InnerDecay decay)
      : space_(b.space),
        heads_(b.heads),
        compute_(b.build.compute),
        beta_(b.build, b.space, gate_of(b, "b_proj", "shared_b")),
        a_log_(head_vector(b, decay, "A_log", Init::log_of_uniform(0.0, 16.0))),
        dt_bias_(head_vector(b, decay, "dt_bias", Init::time_step(1e-3, 1e-1))),
        recurrence_({b.heads, b.heads, b.dk, b.dv, 1.0f / std::sqrt(static_cast<float>(b.dk))}) {
    if (decay == InnerDecay::kYes)
      decay_.emplace(b.build, b.space, gate_of(b, "a_proj", "shared_a"));
  }

  Tensor forward(Exec& exec, const InnerInputs& in, State* state,
                 SavedStack& saved) const override {
    Saved f;
    const int64_t rows = in.rows.count();
    f.q_inv_norm = exec.empty({rows, heads_});
    f.k_inv_norm = exec.empty({rows, heads_});
    kernels::l2_norm_forward(exec, {.heads = heads_}, in.q, in.q, f.q_inv_norm);
    kernels::l2_norm_forward(exec, {.heads = heads_}, in.k, in.k, f.k_inv_norm);
    open_gates(exec, in, f);
    const Tensor out = recurrence_.forward(exec, inputs(in, f), in.rows.sequence, state, saved);
    saved.push(std::move(f));
    return out;
  }

  void backward(Exec& exec, const InnerInputs& in, ConstView d_out, State* d_state,
                const InnerGradients& gradients, SavedStack& saved) const override {
    const Saved f = saved.pop<Saved>();
    const Tensor d_beta = exec.empty(f.beta.shape());
    const Tensor d_decay = decay_ ? exec.empty(f.log_decay.shape()) : Tensor{};
    recurrence_.backward(exec, inputs(in, f), in.rows.sequence, d_out, d_state,
                         {gradients.q, gradients.k, gradients.v, d_beta, wanted(d_decay)}, saved);
    kernels::l2_norm_backward(exec, {.heads = heads_}, gradients.q, in.q, f.q_inv_norm,
                              gradients.q);
    kernels::l2_norm_backward(exec, {.heads = heads_}, gradients.k, in.k, f.k_inv_norm,
                              gradients.k);
    const Tensor d_gate = exec.empty(f.b.shape(), compute_);
    kernels::activation_backward(exec, kernels::Activation::kSigmoid, f.b,
                                 space_.collect(exec, in.rows, d_beta), d_gate);
    beta_.backward(exec, d_gate, in.x, in.rows, gradients.x, Write::kAccumulate);
    if (!decay_) return;
    kernels::head_decay_backward(exec, decay_gate(f), space_.collect(exec, in.rows, d_decay),
                                 d_gate, a_log_->grad, dt_bias_->grad);
    decay_->backward(exec, d_gate, in.x, in.rows, gradients.x, Write::kAccumulate);
  }

  double flops_per_row() const override { return recurrence_.flops_per_token(); }
  double gate_flops() const override { return beta_.flops_per_row() * (decay_ ? 2.0 : 1.0); }

 private:
  struct Saved {
    Tensor b, a;                    // [computed rows, heads] f32
    Tensor beta, log_decay;         // [rows, heads] f32
    Tensor q_inv_norm, k_inv_norm;  // [rows, heads]
  };

  void open_gates(Exec& exec, const InnerInputs& in, Saved& f) const {
    f.b = beta_.forward(exec, in.x, in.rows, DType::kF32);
    const Tensor beta = exec.empty(f.b.shape());
    kernels::activation_forward(exec, kernels::Activation::kSigmoid, f.b, beta);
    f.beta = space_.spread(exec, in.rows, beta);
    if (!decay_) return;
    f.a = decay_->forward(exec, in.x, in.rows, DType::kF32);
    const Tensor log_decay = exec.empty(f.a.shape());
    kernels::head_decay_forward(exec, decay_gate(f), log_decay);
    f.log_decay = space_.spread(exec, in.rows, log_decay);
  }
  kernels::HeadDecay decay_gate(const Saved& f) const {
    return {f.a, a_log_->value, dt_bias_->value};
  }
  static DeltaInputs inputs(const InnerInputs& in, const Saved& f) {
    return {in.q, in.k, in.v, f.beta, given(f.log_decay)};
  }

  MemorySpace space_;
  int64_t heads_;
  DType compute_;
  MemoryLinear beta_;
  std::optional<MemoryLinear> decay_;
  Parameter* a_log_;  // [heads], with decay
  Parameter* dt_bias_;
  DeltaRecurrence recurrence_;
};

}  // namespace

std::unique_ptr<InnerRule> make_inner_delta(const InnerBuild& inner, InnerDecay decay) {
  return std::make_unique<InnerDelta>(inner, decay);
}

}  // namespace weft
