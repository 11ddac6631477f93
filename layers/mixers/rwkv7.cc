// RWKV-7.
//   M_t = diag(e^{g_t}) M_{t-1} - (kappa_t a_t)^T (kappa_t M_{t-1}) + k_t^T v_t,   o_t = r_t M_t
// Every input reads its own mix of a token with the one before it, x_n = x + n (shift(x) - x):
//   r, k, v = projections of x_r, x_k, x_v
//   g = -e^{-1/2} sigmoid(lora_w(x_w)), lora_w with a tanh
//   a = sigmoid(lora_a(x_a)) and k give kappa and the key that is written (kernels/gates/rwkv7.h)
//   v <- v + (v_first - v) sigmoid(lora_v(x_v)) in every layer but the first, whose v is v_first
//   y = o_proj( (GroupNorm_heads(o) + (r . (k r_k)) v) * lora_g(x_g) ), lora_g with a sigmoid
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "kernels/gates/activation.h"
#include "kernels/gates/rwkv7.h"
#include "kernels/rows/elementwise.h"
#include "kernels/sequence/token_lerp.h"
#include "layers/basic/cast.h"
#include "layers/basic/low_rank.h"
#include "layers/basic/rwkv7_start.h"
#include "layers/basic/token_mix.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/rank_one.h"

namespace weft {
namespace {

struct Rwkv7Options {
  int64_t heads = 0;
  int64_t decay_rank = 0, rate_rank = 0, value_rank = 0, gate_rank = 0;
  int64_t all_heads = 0;  // of the layer; heads: of this tensor rank
};

void fields(FieldVisitor& f, Rwkv7Options& c) {
  f("heads", c.heads, "of width hidden / heads; must be given", between(1, kLargestExtent));
  f("decay_rank", c.decay_rank,
    "rank of the projection of the decays; 0: from the widths, as published",
    between(0, kLargestExtent));
  f("rate_rank", c.rate_rank, "rank of the projection of the rates of removal; 0: as published",
    between(0, kLargestExtent));
  f("value_rank", c.value_rank,
    "rank of the projection that mixes in the first layer's values; 0: as published",
    between(0, kLargestExtent));
  f("gate_rank", c.gate_rank, "rank of the output gate; 0: as published",
    between(0, kLargestExtent));
}

constexpr float kSlowestDecay = -0.60653066f;  // -e^{-1/2}
constexpr auto kSigmoid = kernels::Activation::kSigmoid;
constexpr std::string_view kTokenMix = "token_mix";

enum Input { kR, kW, kK, kV, kA, kG, kInputs };
using Mixes = std::array<Tensor, kInputs>;

class Rwkv7 final : public Mixer {
 public:
  Rwkv7(const MixerBuild& build, const Rwkv7Options& o);

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override;
  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override;
  double flops_per_token(int64_t length) const override;

 private:
  Rwkv7(const MixerBuild& build, const Rwkv7Options& o, const Rwkv7Start& start);

  struct Saved {
    Tensor x, before;               // [tokens, hidden]; before: x of the token before
    Tensor r, k, v;                 // projections
    Tensor decay, rate, log_decay;  // f32; decay, rate: before their sigmoids
    Tensor alpha, beta, key;
    Tensor first, mix, mix_gate;  // first layer's v, its share (f32) and that before the sigmoid
    Tensor value;                 // v after the mix; v itself in the first layer
    Tensor out, gate;
  };

  RankOneInputs inputs(const Saved& f) const {
    return {f.r, f.key, f.value, f.log_decay, f.alpha, f.beta};
  }
  kernels::Rwkv7Keys key_gates(const Saved& f) const {
    return {heads_, f.k, f.rate, k_k_.value, k_a_.value};
  }
  kernels::Rwkv7Output output(const Saved& f) const {
    return {heads_,      epsilon_,         f.out,     f.r, f.key, f.value, f.gate,
            norm_.value, norm_bias_.value, r_k_.value};
  }

  // Of what was projected, all f32: decay, rate before their sigmoids, value after the mix.
  struct Gradients {
    Gradients(Exec& exec, const Shape& shape)
        : r(exec.empty(shape)),
          k(exec.empty(shape)),
          value(exec.empty(shape)),
          decay(exec.empty(shape)),
          rate(exec.empty(shape)),
          gate(exec.empty(shape)) {}
    Tensor r, k, value, decay, rate, gate;
  };
  // From the gradient of the gated output to those of everything that was projected; returns that
  // of what the gate's projection read.
  Tensor backward_core(Exec& exec, const Tensor& d_y, const MixerContext& context, const Saved& f,
                       const Gradients& d, SavedStack& saved) const;

  // Values that were mixed with the first layer's, or made the first layer's.
  void mix_values(Exec& exec, const Tensor& mixed, StepContext* step, Saved& f,
                  SavedStack& saved) const;
  // From the gradient of the mixed values to that of v, f32; d_input: what the mix's share adds to
  // the gradient of x_v, undefined in the first layer.
  Tensor mix_values_backward(Exec& exec, const Tensor& d_value, StepContext* step, const Saved& f,
                             Tensor& d_input, SavedStack& saved) const;

  int64_t heads_, hidden_, channels_, layer_;  // channels: of this tensor rank's heads
  float epsilon_;
  DType compute_;
  PreviousToken previous_;
  std::array<Parameter*, kInputs> mixes_;  // [hidden] each
  Linear r_, k_, v_;
  Lora decay_, rate_, gate_;
  std::unique_ptr<Lora> value_;  // not in layer 0
  Parameter &k_k_, &k_a_, &r_k_;
  RankOneRecurrence recurrence_;
  Parameter &norm_, &norm_bias_;
  Linear out_;
};

// A vector along the channels of all heads.
Parameter& channels(const MixerBuild& build, const char* name, const Shape& shape, int64_t unit,
                    Init init) {
  return build.declare({.name = build.scope + name,
                        .global = shape,
                        .splits = {Split{.dim = 0, .axis = Axis::kTensor, .unit = unit}},
                        .init = std::move(init),
                        .weight_decay = false,
                        .f32 = true});
}

std::array<Parameter*, kInputs> declare_mixes(const MixerBuild& build, const Rwkv7Start& start) {
  constexpr const char* kNames[kInputs] = {"x_r", "x_w", "x_k", "x_v", "x_a", "x_g"};
  constexpr double kPowers[kInputs] = {0.2, 0.9, 0.7, 0.7, 0.9, 0.2};
  std::array<Parameter*, kInputs> mixes;
  for (int i = 0; i < kInputs; ++i) {
    mixes[i] = &build.declare({.name = build.scope + kNames[i],
                               .global = {build.hidden},
                               .partial_over = {Axis::kTensor},
                               .init = start.mix(kPowers[i]),
                               .weight_decay = false,
                               .f32 = true});
  }
  return mixes;
}

Linear project(const MixerBuild& build, const char* name, int64_t heads, int64_t width,
               double gain) {
  return Linear(build, {{name, heads * width, width}}, build.hidden,
                {.init = Init::orthogonal(gain), .cut = Linear::Cut::kRows});
}

Rwkv7::Rwkv7(const MixerBuild& build, const Rwkv7Options& o)
    : Rwkv7(build, o, Rwkv7Start(build, o.all_heads, build.hidden / o.all_heads)) {}

Rwkv7::Rwkv7(const MixerBuild& build, const Rwkv7Options& o, const Rwkv7Start& start)
    : heads_(o.heads),
      hidden_(build.hidden),
      channels_(o.heads * start.width),
      layer_(build.layer),
      epsilon_(1e-5f * static_cast<float>(start.width)),
      compute_(build.compute),
      previous_(build.hidden),
      mixes_(declare_mixes(build, start)),
      r_(project(build, "r_proj", heads_, start.width, 1.0)),
      k_(project(build, "k_proj", heads_, start.width, 0.1)),
      v_(project(build, "v_proj", heads_, start.width, 1.0)),
      decay_(build, "w", hidden_,
             {.rank = o.decay_rank,
              .out = channels_,
              .unit = start.width,
              .activation = kernels::Activation::kTanh,
              .bias_init = start.decay()}),
      rate_(build, "a", hidden_,
            {.rank = o.rate_rank,
             .out = channels_,
             .unit = start.width,
             .bias_init = start.ramp(-0.19, 0.4, 0.3)}),
      gate_(build, "g", hidden_,
            {.rank = o.gate_rank,
             .out = channels_,
             .unit = start.width,
             .activation = kSigmoid,
             .bias = Linear::Bias::kNo}),
      value_(build.layer == 0
                 ? nullptr
                 : std::make_unique<Lora>(build, "v", hidden_,
                                          Lora::Options{.rank = o.value_rank,
                                                        .out = channels_,
                                                        .unit = start.width,
                                                        .bias_init = start.ramp(0.73, -0.4, 0.0)})),
      k_k_(channels(build, "k_k", {channels_}, start.width, start.ramp(0.71, -0.1, 0.0))),
      k_a_(channels(build, "k_a", {channels_}, start.width, Init::constant(1.02))),
      r_k_(channels(build, "r_k", {heads_, start.width}, 1, Init::constant(-0.04))),
      recurrence_({heads_, start.width, start.width, 1.0f}),
      norm_(channels(build, "g_norm.weight", {channels_}, start.width, start.norm())),
      norm_bias_(channels(build, "g_norm.bias", {channels_}, start.width, Init::zeros())),
      // Zero as a deviation: see Lora.
      out_(build, {{"o_proj", hidden_}}, channels_,
           {.init = Init::normal(0.0), .cut = Linear::Cut::kColumns}) {}

void Rwkv7::mix_values(Exec& exec, const Tensor& mixed, StepContext* step, Saved& f,
                       SavedStack& saved) const {
  const bool first = value_ == nullptr || step == nullptr || !step->first_value.defined() ||
                     step->first_value_layer == layer_;
  f.value = f.v;
  if (first) {
    if (step == nullptr) return;
    step->first_value = f.v;
    step->first_value_layer = layer_;
    if (!step->repeating) step->d_first_value = {};
    return;
  }
  f.first = step->first_value;
  f.mix_gate = value_->forward(exec, mixed, DType::kF32, saved);
  f.mix = exec.empty(f.mix_gate.shape());
  kernels::activation_forward(exec, kSigmoid, f.mix_gate, f.mix);
  f.value = exec.empty(f.v.shape(), compute_);
  kernels::token_lerp_forward(exec, {f.v, f.first, f.mix}, f.value);
}

Tensor Rwkv7::mix_values_backward(Exec& exec, const Tensor& d_value, StepContext* step,
                                  const Saved& f, Tensor& d_input, SavedStack& saved) const {
  if (!f.first.defined()) {
    if (step != nullptr && step->d_first_value.defined()) {
      kernels::add(exec, d_value, step->d_first_value, d_value);
    }
    return d_value;
  }
  if (!step->d_first_value.defined()) step->d_first_value = exec.zeros(f.v.shape());
  const Tensor dv = exec.zeros(f.v.shape()), d_mix = exec.empty(f.mix.shape());
  kernels::token_lerp_backward(exec, {f.v, f.first, f.mix}, d_value,
                               {dv, step->d_first_value, d_mix});
  kernels::activation_backward(exec, kSigmoid, f.mix_gate, d_mix, d_mix);
  d_input = value_->backward(exec, d_mix, DType::kF32, saved);
  return dv;
}

Tensor Rwkv7::forward(Exec& exec, const Tensor& x, const MixerContext& context,
                      SavedStack& saved) const {
  Saved f;
  f.x = x;
  f.before = exec.empty(x.shape(), compute_);
  previous_.forward(exec, {x, f.before}, context.sequence, context.part(kTokenMix), saved);
  const auto mixed = [&](Input n) {
    const Tensor y = exec.empty(x.shape(), compute_);
    kernels::token_lerp_forward(exec, {x, f.before, mixes_[n]->value}, y);
    return y;
  };
  f.r = exec.empty({x.shape()[0], channels_}, compute_);
  f.k = k_.forward(exec, mixed(kK), compute_, saved);
  f.decay = decay_.forward(exec, mixed(kW), DType::kF32, saved);
  f.rate = rate_.forward(exec, mixed(kA), DType::kF32, saved);
  const Tensor for_values = mixed(kV);
  f.v = v_.forward(exec, for_values, compute_, saved);
  mix_values(exec, for_values, context.step, f, saved);

  f.log_decay = exec.empty(f.decay.shape());
  kernels::activation_forward(exec, kSigmoid, f.decay, f.log_decay);
  kernels::scale(exec, f.log_decay, kSlowestDecay, f.log_decay);
  f.alpha = exec.empty(f.k.shape(), compute_), f.beta = exec.empty(f.k.shape(), compute_);
  f.key = exec.empty(f.k.shape(), compute_);
  kernels::rwkv7_keys_forward(exec, key_gates(f), f.alpha, f.beta, f.key);
  f.out =
      recurrence_.forward(exec, inputs(f), context.sequence, context.part(kRecurrence), saved, [&] {
        r_.forward_to(exec, mixed(kR), f.r, saved);
        f.gate = gate_.forward(exec, mixed(kG), compute_, saved);
      });
  const Tensor y = exec.empty(f.out.shape(), compute_);
  kernels::rwkv7_output_forward(exec, output(f), y);
  saved.push(std::move(f));
  return out_.forward(exec, y, DType::kF32, saved);
}

Tensor Rwkv7::backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                       SavedStack& saved) const {
  const Tensor d_y = out_.backward(exec, in_type(exec, dy, compute_), DType::kF32, saved);
  const Saved f = saved.pop<Saved>();
  Gradients d(exec, f.out.shape());
  const Tensor for_gate = backward_core(exec, d_y, context, f, d, saved);

  const Tensor for_queries = r_.backward(exec, in_type(exec, d.r, compute_), DType::kF32, saved);
  const Tensor dx = exec.zeros(f.x.shape()), d_before = exec.zeros(f.x.shape());
  const auto unmix = [&](Input n, const Tensor& gradient) {
    kernels::token_lerp_backward(exec, {f.x, f.before, mixes_[n]->value}, gradient,
                                 {dx, d_before, mixes_[n]->grad});
  };
  Tensor from_mix;
  const Tensor dv = mix_values_backward(exec, d.value, context.step, f, from_mix, saved);
  const Tensor for_values = v_.backward(exec, in_type(exec, dv, compute_), DType::kF32, saved);
  if (from_mix.defined()) kernels::add(exec, for_values, from_mix, for_values);
  unmix(kV, for_values);
  unmix(kG, for_gate);
  unmix(kA, rate_.backward(exec, d.rate, DType::kF32, saved));
  unmix(kW, decay_.backward(exec, d.decay, DType::kF32, saved));
  unmix(kK, k_.backward(exec, in_type(exec, d.k, compute_), DType::kF32, saved));
  unmix(kR, for_queries);
  previous_.backward(exec, {f.x, f.before}, context.sequence, d_before, context.part(kTokenMix),
                     {dx}, saved);
  return dx;
}

Tensor Rwkv7::backward_core(Exec& exec, const Tensor& d_y, const MixerContext& context,
                            const Saved& f, const Gradients& d, SavedStack& saved) const {
  const Shape& shape = f.out.shape();
  const Tensor d_out = exec.empty(shape), dr = exec.empty(shape), d_key = exec.empty(shape),
               d_value = exec.empty(shape), d_alpha = exec.empty(shape), d_beta = exec.empty(shape);
  kernels::rwkv7_output_backward(
      exec, output(f),
      {d_y, d_out, dr, d_key, d_value, d.gate, norm_.grad, norm_bias_.grad, r_k_.grad});
  const Tensor scan_key = exec.empty(shape);
  Tensor for_gate;
  recurrence_.backward(exec, inputs(f), context.sequence, d_out, context.part(kRecurrence),
                       {d.r, scan_key, d.value, d.decay, d_alpha, d_beta}, saved,
                       [&] { for_gate = gate_.backward(exec, d.gate, DType::kF32, saved); });
  kernels::add(exec, d.r, dr, d.r);
  kernels::add(exec, d.value, d_value, d.value);
  kernels::add(exec, scan_key, d_key, d_key);
  kernels::scale(exec, d.decay, kSlowestDecay, d.decay);
  kernels::activation_backward(exec, kSigmoid, f.decay, d.decay, d.decay);
  kernels::rwkv7_keys_backward(exec, key_gates(f),
                               {d_alpha, d_beta, d_key, d.k, d.rate, k_k_.grad, k_a_.grad});
  return for_gate;
}

double Rwkv7::flops_per_token(int64_t) const {
  const double matrix = static_cast<double>(hidden_) * static_cast<double>(channels_);
  const double loras = decay_.flops_per_token() + rate_.flops_per_token() +
                       gate_.flops_per_token() +
                       (value_ == nullptr ? 0.0 : value_->flops_per_token());
  return 2.0 * 4.0 * matrix + loras + recurrence_.flops_per_token();
}

}  // namespace

std::unique_ptr<Mixer> make_rwkv7(const MixerBuild& build) {
  auto o = read_options<Rwkv7Options>(build.options, "rwkv7");
  const HeadOptions heads = resolve(build, {.heads = o.heads}, HeadWidths::kFromHidden);
  o.heads = heads.heads, o.all_heads = heads.all_heads;
  const Rwkv7Start start(build, o.all_heads, build.hidden / o.all_heads);
  const double factor = static_cast<double>(start.width) / 64.0;
  if (o.decay_rank == 0) o.decay_rank = start.rank(2.5 * factor);
  if (o.rate_rank == 0) o.rate_rank = start.rank(2.5 * factor);
  if (o.value_rank == 0) o.value_rank = start.rank(1.7 * factor);
  if (o.gate_rank == 0) o.gate_rank = start.rank(5.0);
  return std::make_unique<Rwkv7>(build, o);
}

std::vector<FieldInfo> options_of_rwkv7() { return describe<Rwkv7Options>(); }

}  // namespace weft
