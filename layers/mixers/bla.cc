// Basic linear attention.   M_t = M_{t-1} + phi(k_t)^T v_t,   o_t = dk^{-1/2} phi(q_t) M_t
// optionally divided by the sum of its weights, dk^{-1/2} phi(q_t) . z_t with z_t = z_{t-1} +
// phi(k_t).
#include "layers/mixers/linear_mixer.h"
#include "layers/recurrence/scalar.h"

namespace weft {
namespace {

struct BlaOptions {
  HeadOptions heads;
  std::string feature_map = "elu1";
  bool normalize = false;
  bool short_conv = false;
  bool output_gate = true;
};

void fields(FieldVisitor& f, BlaOptions& c) {
  fields(f, c.heads);
  f.choice("feature_map", c.feature_map, {"elu1", "silu", "relu", "identity"}, "phi, on q and k");
  f("normalize", c.normalize, "divide by the sum of the weights");
  f("short_conv", c.short_conv, kShortConvHelp);
  f("output_gate", c.output_gate, "multiply the output by silu of a projection of the input");
}

kernels::Activation activation_named(const std::string& name) {
  if (name == "elu1") return kernels::Activation::kElu1;
  if (name == "silu") return kernels::Activation::kSilu;
  if (name == "relu") return kernels::Activation::kRelu;
  return kernels::Activation::kIdentity;
}

}  // namespace

std::unique_ptr<Mixer> make_bla(const MixerBuild& build) {
  const auto o = read_options<BlaOptions>(build.options, "bla");
  const HeadOptions h = resolve(build, o.heads);
  return std::make_unique<LinearMixer>(
      build,
      LinearSpec{.heads = LinearHeads(h),
                 .convs = last_if(o.short_conv),
                 .map = activation_named(o.feature_map),
                 .rule = {.core = core_of<ScalarRecurrence, 1>({h, key_scale(h.dk), o.normalize})},
                 .gate = silu_gate(o.output_gate),
                 .output_gradient = build.compute});
}

LinearRule memory_rule_of_bla(const RuleBuild& b) {
  return {.core = core_of<ScalarRecurrence, 1>({b.heads, key_scale(b.heads.dk)})};
}

std::vector<FieldInfo> options_of_bla() { return describe<BlaOptions>(); }

}  // namespace weft
