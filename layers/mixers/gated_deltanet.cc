// Gated DeltaNet: the delta rule on a state that decays.
//   M_t = e^{g_t} (I - b_t k_t^T k_t) M_{t-1} + b_t k_t^T v_t,   o_t = dk^{-1/2} q_t M_t
// with short convolutions on q, k, v, keys and queries of length one, b_t = sigmoid of a projection
// and g_t = -e^{A_log} softplus(projection + dt_bias) per head.
#include <algorithm>

#include "layers/mixers/linear_delta.h"

namespace weft {
namespace {

struct GatedDeltanetOptions {
  int64_t heads = 0, value_heads = 0, dk = 0, dv = 0;
  bool short_conv = true;
  bool negative_eigenvalues = false;
  bool output_gate = true;
  double norm_eps = 1e-5;
};

void fields(FieldVisitor& f, GatedDeltanetOptions& c) {
  head_fields(f, c.heads, c.dk, c.dv);
  f("value_heads", c.value_heads,
    "of values, states and gates, a multiple of heads: groups share a query and a key; 0: as heads",
    between(0, kLargestExtent));
  f("short_conv", c.short_conv, "convolve q, k and v over the last four tokens");
  f("negative_eigenvalues", c.negative_eigenvalues,
    "beta = 2 sigmoid: a write may turn a value around");
  f("output_gate", c.output_gate, "multiply the output by silu of a projection of the input");
  f("norm_eps", c.norm_eps, "epsilon of the output's norm", above(0));
}

int64_t value_heads_of(const MixerBuild& build, int64_t heads, int64_t value_heads) {
  if (value_heads == 0) return heads;
  if (value_heads % heads == 0) return value_heads;
  throw ConfigError("{} = {} is no multiple of heads = {}; the nearest is {}",
                    place_of(build.options, "value_heads"), value_heads, heads,
                    std::max<int64_t>(1, (value_heads + heads / 2) / heads) * heads);
}

GateSpec decay() { return {.stem = "a", .slot = 1, .map = GateSpec::Map::kHeadDecay}; }

}  // namespace

std::unique_ptr<Mixer> make_gated_deltanet(const MixerBuild& build) {
  const auto o = read_options<GatedDeltanetOptions>(build.options, "gated_deltanet");
  const HeadOptions h = resolve(build, {.heads = o.heads, .dk = o.dk, .dv = o.dv});
  const int64_t values = value_heads_of(build, h.all_heads, o.value_heads);
  LinearSpec spec = delta_spec(build, {.heads = h,
                                       .value_heads = values / h.all_heads * h.heads,
                                       .short_conv = o.short_conv,
                                       .negative_eigenvalues = o.negative_eigenvalues,
                                       .output_gate = o.output_gate});
  spec.rule.gates.push_back(decay());
  spec.finish.epsilon = static_cast<float>(o.norm_eps);
  return std::make_unique<LinearMixer>(build, std::move(spec));
}

LinearRule memory_rule_of_gated_deltanet(const RuleBuild& b) {
  LinearRule rule = delta_rule(b.build.compute, b.heads, b.heads.heads,
                               GatedDeltanetOptions{}.negative_eigenvalues);
  rule.gates.push_back(decay());
  return rule;
}

std::vector<FieldInfo> options_of_gated_deltanet() { return describe<GatedDeltanetOptions>(); }

}  // namespace weft
