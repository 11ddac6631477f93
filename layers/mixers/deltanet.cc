// DeltaNet: the delta rule.   M_t = (I - b_t k_t^T k_t) M_{t-1} + b_t k_t^T v_t,   o_t = dk^{-1/2}
// q_t M_t with short convolutions on q, k, v, keys and queries of length one and b_t = sigmoid of a
// projection.
#include "layers/mixers/linear_delta.h"

namespace weft {
namespace {

struct DeltanetOptions {
  int64_t heads = 0, dk = 0, dv = 0;
  bool short_conv = true;
  bool negative_eigenvalues = false;
  bool output_gate = false;
};

void fields(FieldVisitor& f, DeltanetOptions& c) {
  head_fields(f, c.heads, c.dk, c.dv);
  f("short_conv", c.short_conv, "convolve q, k and v over the last four tokens");
  f("negative_eigenvalues", c.negative_eigenvalues,
    "beta = 2 sigmoid: a write may turn a value around");
  f("output_gate", c.output_gate, "multiply the output by silu of a projection of the input");
}

}  // namespace

std::unique_ptr<Mixer> make_deltanet(const MixerBuild& build) {
  const auto o = read_options<DeltanetOptions>(build.options, "deltanet");
  const HeadOptions h = resolve(build, {.heads = o.heads, .dk = o.dk, .dv = o.dv});
  return std::make_unique<LinearMixer>(
      build, delta_spec(build, {.heads = h,
                                .value_heads = h.heads,
                                .short_conv = o.short_conv,
                                .negative_eigenvalues = o.negative_eigenvalues,
                                .output_gate = o.output_gate}));
}

LinearRule memory_rule_of_deltanet(const RuleBuild& b) {
  return delta_rule(b.build.compute, b.heads, b.heads.heads,
                    DeltanetOptions{}.negative_eigenvalues);
}

std::vector<FieldInfo> options_of_deltanet() { return describe<DeltanetOptions>(); }

}  // namespace weft
