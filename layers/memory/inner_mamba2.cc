#include "kernels/gates/ssm.h"
#include "layers/basic/cast.h"
#include "layers/memory/inner_rule.h"
#include "layers/recurrence/scalar.h"

namespace weft {
namespace {

// Memories of Mamba2: the step dt = softplus(dt_proj x + dt_bias) of a token decays its head by
// e^{-dt e^{A_log}} and scales what it writes; D lets the value past the memory. The memories share
// A_log, dt_bias and D.
class InnerMamba2 final : public InnerRule {
 public:
  explicit InnerMamba2(const InnerBuild& b)
      : space_(b.space),
        heads_(b.heads),
        compute_(b.build.compute),
        step_(b.build, b.space,
              {.name = "dt_proj",
               .shared_name = "shared_dt",
               .out = b.heads,
               .in = b.build.hidden,
               .unit = 1}),
        a_log_(vector(b, "A_log", Init::log_of_uniform(1.0, 16.0))),
        dt_bias_(vector(b, "dt_bias", Init::time_step(1e-3, 1e-1))),
        skip_(vector(b, "D", Init::constant(1.0))),
        recurrence_({.heads = {b.heads, b.heads, b.dk, b.dv}}) {}

  Tensor forward(Exec& exec, const InnerInputs& in, State* state, SavedStack& saved,
                 const Queries& queries) const override {
    Saved f;
    f.raw = step_.forward(exec, in.x, in.rows, DType::kF32);
    const Tensor dt = exec.empty(f.raw.shape());
    kernels::time_step_forward(exec, f.raw, dt_bias_.value, dt);
    f.dt = space_.spread(exec, in.rows, dt);
    f.v = exec.empty({in.v.rows(), in.v.width()}, compute_);
    f.log_decay = exec.empty(f.dt.shape());
    kernels::head_steps_forward(exec, head_steps(in, f), f.v, f.log_decay);
    const Tensor out = recurrence_.forward(exec, {in.q, in.k, f.v, f.log_decay}, in.rows.sequence,
                                           state, saved, queries);
    kernels::add_head_skip(exec, head_steps(in, f), out);
    saved.push(std::move(f));
    return out;
  }

  void backward(Exec& exec, const InnerInputs& in, ConstView d_out, State* d_state,
                const InnerGradients& gradients, SavedStack& saved) const override {
    const Saved f = saved.pop<Saved>();
    const Tensor dv = exec.empty(f.v.shape()), dg = exec.empty(f.dt.shape()),
                 d_dt = exec.empty(f.dt.shape());
    recurrence_.backward(exec, {in.q, in.k, f.v, f.log_decay}, in.rows.sequence, d_out, d_state,
                         {gradients.q, gradients.k, dv, dg}, saved);
    kernels::head_steps_backward(exec, head_steps(in, f),
                                 {dv, dg, d_out, gradients.v, d_dt, a_log_.grad, skip_.grad});
    const Tensor d_raw = exec.empty(f.raw.shape(), compute_);
    kernels::time_step_backward(exec, f.raw, dt_bias_.value, space_.collect(exec, in.rows, d_dt),
                                d_raw, dt_bias_.grad);
    step_.backward(exec, d_raw, in.x, in.rows, gradients.x, kernels::Write::kAccumulate);
  }
  double flops_per_row() const override { return recurrence_.flops_per_token(); }
  double gate_flops() const override { return step_.flops_per_row(); }

 private:
  struct Saved {
    Tensor raw;            // [computed rows, heads] f32
    Tensor dt, log_decay;  // [rows, heads] f32
    Tensor v;              // dt v
  };
  static Parameter& vector(const InnerBuild& b, const char* name, const Init& init) {
    return b.build.declare({.name = b.build.scope + name,
                            .global = {b.heads},
                            .splits = {Split{.dim = 0, .axis = Axis::kTensor}},
                            .init = init,
                            .weight_decay = false,
                            .f32 = true});
  }
  kernels::HeadSteps head_steps(const InnerInputs& in, const Saved& f) const {
    return {in.v, f.dt, a_log_.value, skip_.value};
  }

  MemorySpace space_;
  int64_t heads_;
  DType compute_;
  MemoryLinear step_;
  Parameter &a_log_, &dt_bias_, &skip_;  // [heads]
  ScalarRecurrence recurrence_;
};

}  // namespace

std::unique_ptr<InnerRule> make_inner_mamba2(const InnerBuild& inner) {
  return std::make_unique<InnerMamba2>(inner);
}

}  // namespace weft
