// RWKV-6.   o_t = r_t M_{t-1} + (r_t * u * k_t) . 1 v_t,    M_t = diag(e^{g_t}) M_{t-1} + k_t^T v_t
// where r, k, v, the decays g = -exp(w_lora(x_w)) and the gate each read their own mix of a token
// with the one before it (layers/basic/low_rank_mix.h), and a bonus u weighs the token's own key.
//   y = o_proj( GroupNorm_heads(o) * silu(gate) )
#include "kernels/gates/activation.h"
#include "kernels/gates/decay_gate.h"
#include "kernels/gates/ffn_activation.h"
#include "kernels/rows/elementwise.h"
#include "kernels/rows/group_norm.h"
#include "layers/basic/cast.h"
#include "layers/basic/low_rank_mix.h"
#include "layers/basic/rwkv6_start.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/diagonal.h"

namespace weft {
namespace {

struct Rwkv6Options {
  HeadOptions heads;
  int64_t mix_rank = 32;
  int64_t decay_rank = 64;
  double norm_epsilon = 1e-5;
};

void fields(FieldVisitor& f, Rwkv6Options& c) {
  fields(f, c.heads);
  f("mix_rank", c.mix_rank, "rank of the weights that mix a token with the one before",
    between(1, kLargestExtent));
  f("decay_rank", c.decay_rank, "rank of the projection that gives the decays",
    between(1, kLargestExtent));
  f("norm_epsilon", c.norm_epsilon, "added to the variance of each head's output", above(0));
}

constexpr auto kGated = kernels::FfnActivation::kSwiglu;
constexpr kernels::DecayGate kDecay{.kind = kernels::DecayGate::Kind::kMinusExp};
constexpr auto kTanh = kernels::Activation::kTanh;

class Rwkv6 final : public Mixer {
 public:
  Rwkv6(const MixerBuild& build, const Rwkv6Options& o)
      : o_(o),
        h_(o.heads),
        compute_(build.compute),
        hidden_(build.hidden),
        mix_(build, o.mix_rank),
        r_(build, {{"r_proj", h_.heads * h_.dk, h_.dk}}, hidden_, {.cut = Linear::Cut::kRows}),
        k_(build, {kv_part(h_, "k_proj", h_.dk)}, hidden_, {.cut = Linear::Cut::kRows}),
        v_(build, {kv_part(h_, "v_proj", h_.dv)}, hidden_, {.cut = Linear::Cut::kRows}),
        g_(build, {{"g_proj", h_.heads * h_.dv, h_.dv}}, hidden_, {.cut = Linear::Cut::kRows}),
        // Starts at zero, as the published model does.
        decay_down_(build, {{"w_lora.0", o.decay_rank}}, build.hidden,
                    {.init = Init::normal(0.0), .partial_over = {Axis::kTensor}}),
        decay_up_(build, {kv_part(h_, "w_lora.2", h_.dk)}, o.decay_rank,
                  {.init = Init::uniform(-0.01, 0.01),
                   .cut = Linear::Cut::kRows,
                   .bias = Linear::Bias::kYes,
                   .bias_init =
                       Rwkv6Start(build).decay(build.whole(h_.kv_heads * h_.dk, h_.kv_replicas))}),
        recurrence_({h_, 1.0f}),
        bonus_(declare(build, "bonus", {h_.heads, h_.dk}, 1,
                       Rwkv6Start(build).bonus(h_.all_heads * h_.dk))),
        norm_(declare(build, "g_norm.weight", {h_.heads * h_.dv}, h_.dv, Init::constant(1.0))),
        norm_bias_(declare(build, "g_norm.bias", {h_.heads * h_.dv}, h_.dv, Init::zeros())),
        out_(build, {{"o_proj", build.hidden}}, h_.heads * h_.dv,
             {.init = output_init(build), .cut = Linear::Cut::kColumns}) {}

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override {
    const LowRankMix::Pass mix = mix_.forward(exec, x, context, saved);
    Saved f;
    f.r = exec.empty({x.shape()[0], r_.out()}, compute_);
    f.k = k_.forward(exec, mix.input(exec, LowRankMix::kK), compute_, saved);
    f.v = v_.forward(exec, mix.input(exec, LowRankMix::kV), compute_, saved);
    f.low_in = decay_down_.forward(exec, mix.input(exec, LowRankMix::kW), compute_, saved);
    const Tensor low = exec.empty(f.low_in.shape(), compute_);
    kernels::activation_forward(exec, kTanh, f.low_in, low);
    f.decay_in = decay_up_.forward(exec, low, DType::kF32, saved);
    f.log_decay = exec.empty(f.decay_in.shape());
    kernels::decay_gate_forward(exec, kDecay, f.decay_in, f.log_decay);
    Tensor gate;
    f.out = recurrence_.forward(
        exec, inputs(f), context.sequence, context.part(kRecurrence), saved, [&] {
          r_.forward_to(exec, mix.input(exec, LowRankMix::kR), f.r, saved);
          gate = g_.forward(exec, mix.input(exec, LowRankMix::kG), compute_, saved);
        });
    const Tensor y = normalize(exec, gate, f);
    saved.push(std::move(f));
    return out_.forward(exec, y, DType::kF32, saved);
  }

  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override {
    const Tensor d_y = out_.backward(exec, in_type(exec, dy, compute_), compute_, saved);
    const Saved f = saved.pop<Saved>();
    const Tensor d_gate = exec.empty(f.out.shape(), compute_);
    const Tensor d_out = normalize_backward(exec, d_y, f, d_gate);
    const Tensor dr = exec.empty(f.r.shape(), compute_), dk = exec.empty(f.k.shape(), compute_),
                 dv = exec.empty(f.v.shape(), compute_), d_decay = exec.empty(f.log_decay.shape());
    LowRankMix::Inputs d;
    recurrence_.backward(exec, inputs(f), context.sequence, d_out, context.part(kRecurrence),
                         {dr, dk, dv, d_decay, bonus_.grad.reshaped({h_.heads * h_.dk})}, saved,
                         [&] { d[LowRankMix::kG] = g_.backward(exec, d_gate, compute_, saved); });

    d[LowRankMix::kR] = r_.backward(exec, dr, compute_, saved);
    const Tensor d_decay_in = exec.empty(f.decay_in.shape(), compute_);
    kernels::decay_gate_backward(exec, kDecay, f.decay_in, d_decay, d_decay_in);
    const Tensor d_low = decay_up_.backward(exec, d_decay_in, compute_, saved);
    kernels::activation_backward(exec, kTanh, f.low_in, d_low, d_low);
    d[LowRankMix::kW] = decay_down_.backward(exec, d_low, compute_, saved);
    d[LowRankMix::kV] = v_.backward(exec, dv, compute_, saved);
    d[LowRankMix::kK] = k_.backward(exec, dk, compute_, saved);
    return mix_.backward(exec, d, context, saved);
  }

  double flops_per_token(int64_t) const override {
    const int64_t weights =
        hidden_ * (r_.out() + k_.out() + v_.out() + 2 * g_.out() + o_.decay_rank) +
        o_.decay_rank * decay_up_.out();
    return 2.0 * static_cast<double>(weights) + mix_.flops_per_token() +
           recurrence_.flops_per_token();
  }

 private:
  struct Saved {
    Tensor r, k, v;
    Tensor low_in;               // [tokens, decay_rank] before the tanh
    Tensor decay_in, log_decay;  // [tokens, kv_heads * dk] f32, before and after -exp
    Tensor out;                  // [tokens, heads * dv], of the recurrence
    kernels::GroupNormStatistics statistics;
    Tensor gate_and_out;  // [tokens, gate | normalized], what swiglu reads
  };

  static Parameter& declare(const MixerBuild& build, const char* name, Shape shape, int64_t unit,
                            Init init) {
    return build.declare({.name = build.scope + name,
                          .global = shape,
                          .splits = {Split{.dim = 0, .axis = Axis::kTensor, .unit = unit}},
                          .init = std::move(init),
                          .weight_decay = false,
                          .f32 = true});
  }

  DiagonalRecurrence::Inputs inputs(const Saved& f) const {
    return {f.r, f.k, f.v, f.log_decay, bonus_.value.reshaped({h_.heads * h_.dk})};
  }
  kernels::GroupNorm norm() const {
    return {.heads = h_.heads, .epsilon = static_cast<float>(o_.norm_epsilon)};
  }

  Tensor normalize(Exec& exec, const Tensor& gate, Saved& f) const {
    const int64_t tokens = f.out.shape()[0], width = h_.heads * h_.dv;
    f.statistics = {exec.empty({tokens, h_.heads}), exec.empty({tokens, h_.heads})};
    f.gate_and_out = exec.empty({tokens, 2 * width}, compute_);
    kernels::copy(exec, gate, f.gate_and_out.view().columns(0, width));
    kernels::group_norm_forward(exec, norm(), f.out, norm_.value, norm_bias_.value,
                                f.gate_and_out.view().columns(width, width), f.statistics);
    const Tensor y = exec.empty(f.out.shape(), compute_);
    kernels::ffn_activation_forward(exec, kGated, f.gate_and_out, {}, y);
    return y;
  }
  Tensor normalize_backward(Exec& exec, const Tensor& d_y, const Saved& f,
                            const Tensor& d_gate) const {
    const int64_t width = h_.heads * h_.dv;
    const Tensor d = exec.empty(f.gate_and_out.shape(), compute_);
    kernels::ffn_activation_backward(
        exec, kGated,
        {.pre = f.gate_and_out, .scale = {}, .dh = d_y, .d_pre = d, .d_scale = {}, .h = {}});
    kernels::copy(exec, d.view().columns(0, width), d_gate);
    const Tensor d_out = exec.empty(f.out.shape(), compute_);
    kernels::group_norm_backward(exec, norm(), d.view().columns(width, width), f.out, norm_.value,
                                 f.statistics, {d_out, norm_.grad, norm_bias_.grad});
    return d_out;
  }

  Rwkv6Options o_;
  HeadOptions h_;
  DType compute_;
  int64_t hidden_;
  LowRankMix mix_;
  Linear r_, k_, v_, g_, decay_down_, decay_up_;
  DiagonalRecurrence recurrence_;
  Parameter& bonus_;              // [heads, dk]
  Parameter &norm_, &norm_bias_;  // [heads * dv]
  Linear out_;
};

}  // namespace

std::unique_ptr<Mixer> make_rwkv6(const MixerBuild& build) {
  auto o = read_options<Rwkv6Options>(build.options, "rwkv6");
  o.heads = resolve(build, o.heads);
  return std::make_unique<Rwkv6>(build, o);
}

std::vector<FieldInfo> options_of_rwkv6() { return describe<Rwkv6Options>(); }

}  // namespace weft
