// Basic linear attention.   M_t = M_{t-1} + phi(k_t)^T v_t,   o_t = dk^{-1/2} phi(q_t) M_t
// optionally divided by the sum of its weights, dk^{-1/2} phi(q_t) . z_t with z_t = z_{t-1} +
// phi(k_t).
#include <cmath>

#include "layers/mixers/shell.h"

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
  ScalarRule rule{.heads = resolve(build, o.heads),
                  .feature_map = activation_named(o.feature_map),
                  .short_conv = o.short_conv,
                  .normalize = o.normalize,
                  .output_gate = o.output_gate};
  rule.scale = 1.0f / std::sqrt(static_cast<float>(rule.heads.dk));
  return std::make_unique<ScalarShell>(build, std::move(rule));
}

std::vector<FieldInfo> options_of_bla() { return describe<BlaOptions>(); }

}  // namespace weft
