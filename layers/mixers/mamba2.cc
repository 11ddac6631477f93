// Mamba2. (z, x, B, C, dt) = in_proj(input),  (x, B, C) <- silu(short convolution),  dt <-
// softplus(dt + dt_bias) per head, and per head, whose group of heads shares B and C:
//   M_t = e^{-dt e^{A_log}} M_{t-1} + B_t^T (dt x_t),    y_t = C_t M_t + D x_t
//   out_proj( RMSNorm_group(y * silu(z)) )
#include <algorithm>

#include "kernels/norm.h"
#include "kernels/ssm.h"
#include "layers/convert.h"
#include "layers/linear.h"
#include "layers/mixers/divisor.h"
#include "layers/recurrence/scalar.h"
#include "layers/short_conv.h"

namespace weft {
namespace {

constexpr int64_t kHeadWidth = 64;  // published
constexpr float kNormEpsilon = 1e-5f;

struct Mamba2Options {
  int64_t heads = 0, groups = 1, state = 128, inner = 0;
};

void fields(FieldVisitor& f, Mamba2Options& c) {
  f("heads", c.heads, "0: heads of 64 channels", at_least(0));
  f("groups", c.groups, "of heads that share B and C, and of channels that are normalized together",
    at_least(1));
  f("state", c.state, "rows of a head's state", at_least(1));
  f("inner", c.inner, "channels; 0: twice the hidden width", at_least(0));
}

class Mamba2 final : public Mixer {
 public:
  Mamba2(const MixerBuild& build, const Mamba2Options& o)
      : o_(o),
        shared_(o.groups * o.state),
        compute_(build.compute),
        hidden_(build.hidden),
        project_(build,
                 {{.name = "in_proj",
                   .rows = 2 * o.inner + 2 * shared_ + o.heads,
                   .blocks = {o.inner, o.inner, shared_, shared_, o.heads}}},
                 build.hidden, {.cut = Linear::Cut::kRows}),
        conv_(build, "conv1d", {.channels = o.inner + 2 * shared_, .bias = true}),
        a_log_(vector(build, "A_log", o.heads, Init::log_of_uniform(1.0, 16.0))),
        dt_bias_(vector(build, "dt_bias", o.heads, Init::time_step(1e-3, 1e-1))),
        d_(vector(build, "D", o.heads, Init::constant(1.0))),
        recurrence_(
            {.heads = {o.heads, o.heads, o.state, o.inner / o.heads}, .qk_heads = o.groups}),
        norm_(vector(build, "norm.weight", o.inner, Init::constant(1.0))),
        out_(build, {{"out_proj", build.hidden}}, o.inner,
             {.init = output_init(build), .cut = Linear::Cut::kColumns}) {}

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override {
    const int64_t tokens = context.sequence.tokens();
    Saved f;
    f.projected = project_.forward(exec, x, compute_, saved);
    f.mixed = exec.empty({tokens, o_.inner + 2 * shared_}, compute_);
    conv_.forward(exec, before_conv(f.projected), f.mixed, context.sequence, context.state, saved);
    f.dt = exec.empty({tokens, o_.heads});
    kernels::time_step_forward(exec, step(f.projected), dt_bias_.value, f.dt);
    f.v = exec.empty({tokens, o_.inner}, compute_), f.log_decay = exec.empty(f.dt.shape());
    kernels::head_steps_forward(exec, head_steps(f), f.v, f.log_decay);
    f.y = recurrence_.forward(exec, inputs(f), context.sequence, context.part(kRecurrence), saved);
    kernels::add_head_skip(exec, head_steps(f), f.y);
    f.gated = exec.empty(f.y.shape(), compute_);
    kernels::silu_gate_forward(exec, f.y, gate(f.projected), f.gated);
    f.inv_rms = exec.empty({tokens, o_.groups});
    const Tensor normed = exec.empty(f.y.shape(), compute_);
    kernels::head_norm_forward(exec, group_norm(), f.gated, {}, norm_.value, normed, f.inv_rms);
    saved.push(std::move(f));
    return out_.forward(exec, normed, DType::kF32, saved);
  }

  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override {
    const Tensor d_normed = out_.backward(exec, in_type(exec, dy, compute_), DType::kF32, saved);
    const Saved f = saved.pop<Saved>();
    const Tensor d_y = exec.empty(f.y.shape());
    kernels::head_norm_backward(exec, group_norm(), d_normed, f.gated, {}, norm_.value, f.inv_rms,
                                d_y, {}, norm_.grad);
    const Tensor d = exec.empty(f.projected.shape(), compute_);
    kernels::silu_gate_backward(exec, f.y, gate(f.projected), d_y, d_y, gate(d));
    const Tensor d_mixed = exec.empty(f.mixed.shape()), dv = exec.empty(f.v.shape());
    const Tensor dg = exec.empty(f.dt.shape()), d_dt = exec.empty(f.dt.shape());
    recurrence_.backward(exec, inputs(f), context.sequence, d_y, context.part(kRecurrence),
                         {part(d_mixed, kRead), part(d_mixed, kInput), dv, dg}, saved);
    kernels::head_steps_backward(exec, head_steps(f),
                                 {dv, dg, d_y, part(d_mixed, kX), d_dt, a_log_.grad, d_.grad});
    kernels::time_step_backward(exec, step(f.projected), dt_bias_.value, d_dt, step(d),
                                dt_bias_.grad);
    conv_.backward(exec, before_conv(f.projected), d_mixed, before_conv(d), context.sequence,
                   context.state, saved);
    return project_.backward(exec, d, DType::kF32, saved);
  }

  double flops_per_token(int64_t) const override {
    const int64_t weights =
        hidden_ * (project_.out() + o_.inner) + ShortConv::kTaps * (o_.inner + 2 * shared_);
    return 2.0 * static_cast<double>(weights) + recurrence_.flops_per_token();
  }

 private:
  struct Saved {
    Tensor projected;      // [tokens, z | x | B | C | dt]
    Tensor mixed;          // [tokens, x | B | C] after the convolution
    Tensor dt, log_decay;  // [tokens, heads] f32
    Tensor v;              // [tokens, inner]: dt x
    Tensor y, gated;       // [tokens, inner]
    Tensor inv_rms;        // [tokens, groups]
  };
  enum Mixed { kX, kInput, kRead };

  static Parameter& vector(const Build& build, const char* name, int64_t count, const Init& init) {
    return build.store.declare({.name = build.scope + name,
                                .global = {count},
                                .splits = {Split{.dim = 0, .axis = Axis::kTensor}},
                                .init = init,
                                .weight_decay = false,
                                .f32 = true});
  }
  View gate(const Tensor& rows) const { return rows.view().columns(0, o_.inner); }
  View before_conv(const Tensor& rows) const {
    return rows.view().columns(o_.inner, o_.inner + 2 * shared_);
  }
  View step(const Tensor& rows) const {
    return rows.view().columns(2 * o_.inner + 2 * shared_, o_.heads);
  }
  View part(const Tensor& mixed, Mixed which) const {
    if (which == kX) return mixed.view().columns(0, o_.inner);
    return mixed.view().columns(o_.inner + (which == kRead ? shared_ : 0), shared_);
  }
  kernels::HeadSteps head_steps(const Saved& f) const {
    return {part(f.mixed, kX), f.dt, a_log_.value, d_.value};
  }
  ScalarInputs inputs(const Saved& f) const {
    return {part(f.mixed, kRead), part(f.mixed, kInput), f.v, f.log_decay};
  }
  kernels::HeadNorm group_norm() const { return {.heads = o_.groups, .epsilon = kNormEpsilon}; }

  Mamba2Options o_;
  int64_t shared_;  // width of B and of C
  DType compute_;
  int64_t hidden_;
  Linear project_;
  ShortConv conv_;
  Parameter &a_log_, &dt_bias_, &d_;  // [heads]
  ScalarRecurrence recurrence_;
  Parameter& norm_;  // [inner]
  Linear out_;
};

// What must divide what.
void check(const MixerBuild& build, const Mamba2Options& o) {
  if (o.inner % o.heads != 0) {
    throw ConfigError("{} = {} does not divide the {} channels; the nearest that does is {}",
                      place_of(build.options, "heads"), o.heads, o.inner,
                      nearest_divisor(o.inner, o.heads));
  }
  if (o.heads % o.groups != 0) {
    throw ConfigError("{} = {} does not divide heads = {}; the nearest that does is {}",
                      place_of(build.options, "groups"), o.groups, o.heads,
                      nearest_divisor(o.heads, o.groups));
  }
}

}  // namespace

std::unique_ptr<Mixer> make_mamba2(const MixerBuild& build) {
  auto o = read_options<Mamba2Options>(build.options, "mamba2");
  if (o.inner == 0) o.inner = 2 * build.hidden;
  if (o.heads == 0) o.heads = std::max<int64_t>(1, o.inner / kHeadWidth);
  check(build, o);
  return std::make_unique<Mamba2>(build, o);
}

std::vector<FieldInfo> options_of_mamba2() { return describe<Mamba2Options>(); }

}  // namespace weft
