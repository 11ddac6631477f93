// S4, real and diagonal. (u, z) = in_proj(x), and per channel c with `state` numbers and a step
// dt = e^{log_dt}:
//   M_t[n, c] = e^{-dt_c e^{A_log_cn}} M_{t-1}[n, c] + dt_c B_cn u_c
//   y_c = sum_n C_cn M_t[n, c] + D_c u_c,    out_proj(y * silu(z))
#include <cmath>

#include "kernels/gates/output_gate.h"
#include "layers/basic/cast.h"
#include "layers/basic/linear.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/selective.h"

namespace weft {
namespace {

struct S4Options {
  int64_t state = 16, inner = 0;
};

void fields(FieldVisitor& f, S4Options& c) {
  f("state", c.state, "numbers per channel", between(1, kLargestExtent));
  f("inner", c.inner, "channels; 0: twice the hidden width", between(0, kLargestExtent));
}

class S4 final : public Mixer {
 public:
  S4(const MixerBuild& build, const S4Options& o)
      : inner_(o.inner),
        compute_(build.compute),
        hidden_(build.hidden),
        project_(build, {{.name = "in_proj", .rows = 2 * o.inner, .blocks = {o.inner, o.inner}}},
                 build.hidden, {.cut = Linear::Cut::kRows, .gate = {o.inner, o.inner}}),
        log_dt_(
            channels(build, "log_dt", {o.inner}, Init::uniform(std::log(1e-3), std::log(1e-1)))),
        a_log_(channels(build, "A_log", {o.inner, o.state}, Init::each([n = o.state](int64_t i) {
                          return std::log(static_cast<double>(i % n + 1));
                        }))),
        b_(channels(build, "B", {o.inner, o.state}, Init::constant(1.0))),
        c_(channels(build, "C", {o.inner, o.state},
                    Init::normal(1.0 / std::sqrt(static_cast<double>(o.state))))),
        d_(channels(build, "D", {o.inner}, Init::constant(1.0))),
        recurrence_({o.inner, o.state}),
        out_(build, {{"out_proj", build.hidden}}, o.inner,
             {.init = output_init(build), .cut = Linear::Cut::kColumns}) {}

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override {
    Saved f;
    f.x = x;
    f.projected = project_.begin_forward(exec, x, compute_, saved);
    f.y = recurrence_.forward(exec, inputs(f), context.sequence, context.part(kRecurrence), saved,
                              [&] { project_.finish_gate(exec, x, f.projected); });
    const Tensor gated = exec.empty(f.y.shape(), compute_);
    kernels::output_gate_forward(exec, kernels::GateActivation::kSilu, f.y, gate(f.projected),
                                 gated);
    saved.push(std::move(f));
    return out_.forward(exec, gated, DType::kF32, saved);
  }

  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override {
    const Tensor d_gated = out_.backward(exec, in_type(exec, dy, compute_), DType::kF32, saved);
    const Saved f = saved.pop<Saved>();
    const Tensor d = exec.empty(f.projected.shape(), compute_);
    kernels::output_gate_backward(exec, kernels::GateActivation::kSilu, f.y, gate(f.projected),
                                  d_gated, d_gated, gate(d));
    project_.begin_backward(exec, d, f.x, saved);
    recurrence_.backward(exec, inputs(f), context.sequence, d_gated, context.part(kRecurrence),
                         {input(d), log_dt_.grad, a_log_.grad, b_.grad, c_.grad, d_.grad}, saved);
    return project_.backward(exec, d, DType::kF32, saved);
  }

  double flops_per_token(int64_t) const override {
    return 2.0 * static_cast<double>(hidden_) * static_cast<double>(project_.out() + inner_) +
           recurrence_.flops_per_token();
  }

 private:
  struct Saved {
    Tensor x;          // the layer's input
    Tensor projected;  // [tokens, u | z]
    Tensor y;          // [tokens, inner]
  };

  // What shapes the state does not decay, as in the published models.
  static Parameter& channels(const Build& build, const char* name, const Shape& shape,
                             const Init& init) {
    return build.declare({.name = build.scope + name,
                          .global = shape,
                          .splits = {Split{.dim = 0, .axis = Axis::kTensor}},
                          .init = init,
                          .weight_decay = false,
                          .f32 = true});
  }
  View input(const Tensor& rows) const { return rows.view().columns(0, inner_); }
  View gate(const Tensor& rows) const { return rows.view().columns(inner_, inner_); }
  StaticInputs inputs(const Saved& f) const {
    return {input(f.projected), log_dt_.value, a_log_.value, b_.value, c_.value, d_.value};
  }

  int64_t inner_;
  DType compute_;
  int64_t hidden_;
  Linear project_;
  Parameter &log_dt_, &a_log_, &b_, &c_, &d_;
  StaticRecurrence recurrence_;
  Linear out_;
};

}  // namespace

std::unique_ptr<Mixer> make_s4(const MixerBuild& build) {
  auto o = read_options<S4Options>(build.options, "s4");
  if (o.inner == 0) o.inner = 2 * build.hidden;
  o.inner = cut_evenly(build, "inner", o.inner);
  return std::make_unique<S4>(build, o);
}

std::vector<FieldInfo> options_of_s4() { return describe<S4Options>(); }

}  // namespace weft
