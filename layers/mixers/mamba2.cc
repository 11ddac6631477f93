// Mamba2. (z, x, B, C, dt) = in_proj(input),  (x, B, C) <- silu(short convolution), the step
// dt <- softplus(dt + dt_bias) per head, and per head, whose group of heads shares B and C:
//   M_t = e^{-dt e^{A_log}} M_{t-1} + B_t^T (dt x_t),    y_t = C_t M_t + D x_t
//   out_proj( RMSNorm_group(y * silu(z)) )
#include <algorithm>

#include "kernels/gates/output_gate.h"
#include "kernels/gates/ssm.h"
#include "layers/basic/cast.h"
#include "layers/basic/channel_shards.h"
#include "layers/basic/linear.h"
#include "layers/basic/short_conv.h"
#include "layers/basic/wide_norm.h"
#include "layers/context/divisor.h"
#include "layers/recurrence/scalar.h"

namespace weft {
namespace {

constexpr int64_t kHeadWidth = 64;  // published

struct Mamba2Options {
  int64_t heads = 0, groups = 1, state = 128, inner = 0, norm_groups = 0;
  double norm_eps = 1e-5;
};

// What a tensor rank has: whole heads with their channels, an even part of the channels of B and C,
// which ranks give each other after the convolution, and the groups of those that its heads read.
struct Mamba2Part {
  int64_t heads, inner, shared;
  int64_t groups, first_group;
};

void fields(FieldVisitor& f, Mamba2Options& c) {
  f("heads", c.heads, "0: heads of 64 channels", between(0, kLargestExtent));
  f("groups", c.groups, "of heads that share B and C, and of channels that are normalized together",
    between(1, kLargestExtent));
  f("norm_groups", c.norm_groups, "of channels that are normalized together; 0: as groups",
    between(0, kLargestExtent));
  f("norm_eps", c.norm_eps, "epsilon of that norm", above(0));
  f("state", c.state, "rows of a head's state", between(1, kLargestExtent));
  f("inner", c.inner, "channels; 0: twice the hidden width", between(0, kLargestExtent));
}

class Mamba2 final : public Mixer {
 public:
  Mamba2(const MixerBuild& build, const Mamba2Options& all, const Mamba2Part& part)
      : o_(part),
        all_(all),
        tensor_ranks_(build.tensor_ranks),
        compute_(build.compute),
        hidden_(build.hidden),
        project_(build,
                 {{.name = "in_proj",
                   .rows = 2 * o_.inner + 2 * o_.shared + o_.heads,
                   .blocks = {o_.inner, o_.inner, o_.shared, o_.shared, o_.heads}}},
                 build.hidden, {.cut = Linear::Cut::kRows, .gate = {0, o_.inner}}),
        conv_(build, "conv1d",
              {.channels = o_.inner + 2 * o_.shared,
               .bias = true,
               .blocks = {o_.inner, o_.shared, o_.shared}}),
        a_log_(vector(build, "A_log", o_.heads, Init::log_of_uniform(1.0, 16.0))),
        dt_bias_(vector(build, "dt_bias", o_.heads, Init::time_step(1e-3, 1e-1))),
        d_(vector(build, "D", o_.heads, Init::constant(1.0))),
        recurrence_(
            {.heads = {o_.heads, o_.heads, all.state, o_.inner / o_.heads}, .qk_heads = o_.groups}),
        norm_(build, "norm.weight", o_.inner, 1, all.norm_groups, static_cast<float>(all.norm_eps)),
        out_(build, {{"out_proj", build.hidden}}, o_.inner,
             {.init = output_init(build), .cut = Linear::Cut::kColumns}) {}

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override {
    const int64_t tokens = context.sequence.tokens();
    Saved f;
    f.x = x;
    f.projected = project_.begin_forward(exec, x, compute_, saved);
    f.mixed = exec.empty({tokens, o_.inner + 2 * o_.shared}, compute_);
    conv_.forward(exec, before_conv(f.projected), f.mixed, context.sequence, context.state, saved);
    if (!alone()) {
      f.input = gather_channels(exec, tensor_ranks_, part(f.mixed, kInput));
      f.read = gather_channels(exec, tensor_ranks_, part(f.mixed, kRead));
    }
    f.dt = exec.empty({tokens, o_.heads});
    kernels::time_step_forward(exec, step(f.projected), dt_bias_.value, f.dt);
    f.v = exec.empty({tokens, o_.inner}, compute_), f.log_decay = exec.empty(f.dt.shape());
    kernels::head_steps_forward(exec, head_steps(f), f.v, f.log_decay);
    // C, the queries, are few channels of the same convolution as B's: only the gate comes later.
    f.y = recurrence_.forward(exec, inputs(f), context.sequence, context.part(kRecurrence), saved,
                              [&] { project_.finish_gate(exec, x, f.projected); });
    kernels::add_head_skip(exec, head_steps(f), f.y);
    f.gated = exec.empty(f.y.shape(), compute_);
    kernels::output_gate_forward(exec, kernels::GateActivation::kSilu, f.y, gate(f.projected),
                                 f.gated);
    const Tensor normed = exec.empty(f.y.shape(), compute_);
    f.inv_rms = norm_.forward(exec, f.gated, normed);
    saved.push(std::move(f));
    return out_.forward(exec, normed, DType::kF32, saved);
  }

  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override {
    const Tensor d_normed = out_.backward(exec, in_type(exec, dy, compute_), DType::kF32, saved);
    const Saved f = saved.pop<Saved>();
    const Tensor d_y = exec.empty(f.y.shape());
    norm_.backward(exec, d_normed, f.gated, f.inv_rms, d_y);
    const Tensor d = exec.empty(f.projected.shape(), compute_);
    kernels::output_gate_backward(exec, kernels::GateActivation::kSilu, f.y, gate(f.projected), d_y,
                                  d_y, gate(d));
    project_.begin_backward(exec, d, f.x, saved);
    const Tensor d_mixed = exec.empty(f.mixed.shape()), dv = exec.empty(f.v.shape());
    const Tensor dg = exec.empty(f.dt.shape()), d_dt = exec.empty(f.dt.shape());
    const Tensor d_read = alone() ? Tensor{} : exec.zeros(f.read.shape()),
                 d_input = alone() ? Tensor{} : exec.zeros(f.input.shape());
    recurrence_.backward(exec, inputs(f), context.sequence, d_y, context.part(kRecurrence),
                         {alone() ? part(d_mixed, kRead) : groups_of(d_read),
                          alone() ? part(d_mixed, kInput) : groups_of(d_input), dv, dg},
                         saved);
    if (!alone()) {
      kernels::copy(exec, scatter_channels(exec, tensor_ranks_, d_read), part(d_mixed, kRead));
      kernels::copy(exec, scatter_channels(exec, tensor_ranks_, d_input), part(d_mixed, kInput));
    }
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
        hidden_ * (project_.out() + o_.inner) + ShortConv::kTaps * (o_.inner + 2 * o_.shared);
    return 2.0 * static_cast<double>(weights) + recurrence_.flops_per_token();
  }

 private:
  struct Saved {
    Tensor x;              // the layer's input
    Tensor projected;      // [tokens, z | x | B | C | dt]
    Tensor mixed;          // [tokens, x | B | C] after the convolution
    Tensor dt, log_decay;  // [tokens, heads] f32
    Tensor v;              // [tokens, inner]: dt x
    Tensor y, gated;       // [tokens, inner]
    Tensor inv_rms;        // [tokens, norm_groups]
    Tensor input, read;  // [tokens, groups * state] of all ranks: B and C; undefined with one rank
  };
  enum Mixed { kX, kInput, kRead };

  static Parameter& vector(const Build& build, const char* name, int64_t count, const Init& init) {
    return build.declare({.name = build.scope + name,
                          .global = {count},
                          .splits = {Split{.dim = 0, .axis = Axis::kTensor}},
                          .init = init,
                          .weight_decay = false,
                          .f32 = true});
  }
  View gate(const Tensor& rows) const { return rows.view().columns(0, o_.inner); }
  View before_conv(const Tensor& rows) const {
    return rows.view().columns(o_.inner, o_.inner + 2 * o_.shared);
  }
  View step(const Tensor& rows) const {
    return rows.view().columns(2 * o_.inner + 2 * o_.shared, o_.heads);
  }
  View part(const Tensor& mixed, Mixed which) const {
    if (which == kX) return mixed.view().columns(0, o_.inner);
    return mixed.view().columns(o_.inner + (which == kRead ? o_.shared : 0), o_.shared);
  }
  kernels::HeadSteps head_steps(const Saved& f) const {
    return {part(f.mixed, kX), f.dt, a_log_.value, d_.value};
  }
  ScalarInputs inputs(const Saved& f) const {
    if (!alone()) return {groups_of(f.read), groups_of(f.input), f.v, f.log_decay};
    return {part(f.mixed, kRead), part(f.mixed, kInput), f.v, f.log_decay};
  }
  bool alone() const { return tensor_ranks_ == nullptr || tensor_ranks_->size() == 1; }
  // Of the B or C of all ranks, what the heads here read.
  View groups_of(const Tensor& all) const {
    return all.view().columns(o_.first_group * all_.state, o_.groups * all_.state);
  }

  Mamba2Part o_;
  Mamba2Options all_;  // of the whole layer
  Communicator* tensor_ranks_;
  DType compute_;
  int64_t hidden_;
  Linear project_;
  ShortConv conv_;
  Parameter &a_log_, &dt_bias_, &d_;  // [heads]
  ScalarRecurrence recurrence_;
  WideNorm norm_;
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
  if (o.inner % o.norm_groups != 0) {
    throw ConfigError("{} = {} does not divide the {} channels; the nearest that does is {}",
                      place_of(build.options, "norm_groups"), o.norm_groups, o.inner,
                      nearest_divisor(o.inner, o.norm_groups));
  }
}

Mamba2Part part_of(const MixerBuild& build, const Mamba2Options& o) {
  const auto [index, size] = build.store.here()[Axis::kTensor];
  if (o.groups % size != 0 && size % o.groups != 0) {
    throw ConfigError(
        "{} = {} cannot be cut over parallel.tensor = {} ranks: one must divide the "
        "other; the nearest that works is {}",
        place_of(build.options, "groups"), o.groups, size, nearest_divisor(size, o.groups));
  }
  return {.heads = cut_evenly(build, "heads", o.heads),
          .inner = o.inner / size,
          .shared = cut_evenly(build, "state", o.groups * o.state),
          .groups = std::max<int64_t>(1, o.groups / size),
          .first_group = index * o.groups / size};
}

}  // namespace

std::unique_ptr<Mixer> make_mamba2(const MixerBuild& build) {
  auto o = read_options<Mamba2Options>(build.options, "mamba2");
  if (o.inner == 0) o.inner = 2 * build.hidden;
  if (o.heads == 0) o.heads = std::max<int64_t>(1, o.inner / kHeadWidth);
  if (o.norm_groups == 0) o.norm_groups = o.groups;
  check(build, o);
  return std::make_unique<Mamba2>(build, o, part_of(build, o));
}

std::vector<FieldInfo> options_of_mamba2() { return describe<Mamba2Options>(); }

}  // namespace weft
