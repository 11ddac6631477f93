// Lightning attention.   M_t = e^{-s_h f} M_{t-1} + silu(k_t)^T v_t,   o_t = silu(q_t) M_t
// with ALiBi's slopes s_h and a factor f of the layer.
// MiniMax's models (decay_rule = "minimax") have the slopes 2^{-8 (h + 1) / heads} for any number
// of heads and the factor 1 - l / (L - 1 + 1e-5) + 1e-5 in layer l of L; they also map the values,
// gate by a sigmoid and norm all heads at once, which are options of their own.
#include <cmath>

#include "layers/mixers/linear_mixer.h"
#include "layers/recurrence/fixed_decays.h"
#include "layers/recurrence/scalar.h"

namespace weft {
namespace {

struct LightningOptions {
  HeadOptions heads;
  double layer_factor = 1.0;
  bool layer_decay = false;
  std::string decay_rule = "alibi";
  bool map_values = false;
  bool short_conv = false;
  bool output_gate = true;
  std::string gate = "silu";
  bool joint_norm = false;
  double norm_eps = 1e-5;
};

void fields(FieldVisitor& f, LightningOptions& c) {
  fields(f, c.heads);
  f("layer_factor", c.layer_factor, "multiplies the slopes of every head", at_least(0));
  f("layer_decay", c.layer_decay,
    "multiply layer_factor by 1 - l / (L - 1) + 1e-5 for layer l of L");
  f.choice("decay_rule", c.decay_rule, {"alibi", "minimax"},
           "ALiBi's slopes, or those of MiniMax's models, which differ from layer to layer");
  f("map_values", c.map_values, "silu on v as on q and k");
  f("short_conv", c.short_conv, kShortConvHelp);
  f("output_gate", c.output_gate, "multiply the output by `gate` of a projection of the input");
  f.choice("gate", c.gate, {"silu", "sigmoid"}, "of the output gate");
  f("joint_norm", c.joint_norm, "norm the output over all heads at once, a weight per channel");
  f("norm_eps", c.norm_eps, "epsilon of that norm", above(0));
}

std::vector<float> minimax_log_decays(int64_t heads, int64_t layer, int64_t layers, double factor) {
  const double l = static_cast<double>(layer), last = static_cast<double>(layers - 1) + 1e-5;
  std::vector<float> decays;
  for (int64_t h = 0; h < heads; ++h) {
    const double slope = std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(heads));
    decays.push_back(static_cast<float>(-slope * factor * (1.0 - l / last + 1e-5)));
  }
  return decays;
}

LinearRule lightning_rule(const HeadOptions& h, const std::vector<float>& decays) {
  return {.log_decay = h.here(decays), .core = core_of<ScalarRecurrence, 1>({h})};
}

}  // namespace

std::unique_ptr<Mixer> make_lightning(const MixerBuild& build) {
  const auto o = read_options<LightningOptions>(build.options, "lightning");
  const HeadOptions h = resolve(build, o.heads);
  double factor = o.layer_factor;
  if (o.layer_decay && build.layers > 1) {
    factor *= 1.0 - static_cast<double>(build.layer) / static_cast<double>(build.layers - 1) + 1e-5;
  }
  const std::vector<float> decays =
      o.decay_rule == "minimax" ? minimax_log_decays(h.all_heads, build.layer, build.layers, factor)
                                : alibi_log_decays(h.all_heads, factor);
  OutputGate gate = silu_gate(o.output_gate);
  if (o.output_gate && o.gate == "sigmoid") gate.kind = kernels::GateActivation::kSigmoid;
  return std::make_unique<LinearMixer>(
      build, LinearSpec{.heads = LinearHeads(h),
                        .convs = last_if(o.short_conv),
                        .map = kernels::Activation::kSilu,
                        .mapped = o.map_values ? LinearSpec::Mapped::kQKV : LinearSpec::Mapped::kQK,
                        .rule = lightning_rule(h, decays),
                        .gate = gate,
                        .finish = {.norm = o.joint_norm ? FinishSpec::Norm::kJoint
                                                        : FinishSpec::Norm::kHead,
                                   .epsilon = static_cast<float>(o.norm_eps)},
                        .output_gradient = build.compute});
}

LinearRule memory_rule_of_lightning(const RuleBuild& b) {
  return lightning_rule(b.heads, alibi_log_decays(b.heads.all_heads));
}

std::vector<FieldInfo> options_of_lightning() { return describe<LightningOptions>(); }

}  // namespace weft
