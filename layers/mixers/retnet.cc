// RetNet: a fixed decay per head.   M_t = a_h M_{t-1} + k_t^T v_t,   o_t = dk^{-1/2} q_t M_t
// with a_h = 1 - 2^{-5-h}, h counted over all heads of the layer, and rotated q and k.
#include "layers/mixers/linear_mixer.h"
#include "layers/recurrence/fixed_decays.h"
#include "layers/recurrence/scalar.h"

namespace weft {
namespace {

struct RetnetOptions {
  HeadOptions heads;
  bool rope = true;
  double rope_base = 10000.0;
  bool short_conv = false;
  bool output_gate = true;
};

void fields(FieldVisitor& f, RetnetOptions& c) {
  fields(f, c.heads);
  f("rope", c.rope, "rotate q and k by position");
  f("rope_base", c.rope_base, "base of the rotation's frequencies", above(0));
  f("short_conv", c.short_conv, kShortConvHelp);
  f("output_gate", c.output_gate, "multiply the output by silu of a projection of the input");
}

LinearRule retnet_rule(const HeadOptions& h) {
  return {.log_decay = h.here(retnet_log_decays(h.all_heads)),
          .core = core_of<ScalarRecurrence, 1>({h, key_scale(h.dk)})};
}

}  // namespace

std::unique_ptr<Mixer> make_retnet(const MixerBuild& build) {
  const auto o = read_options<RetnetOptions>(build.options, "retnet");
  const HeadOptions h = resolve(build, o.heads);
  if (o.rope) check_rotary(build, h.dk, h.dk);
  return std::make_unique<LinearMixer>(
      build, LinearSpec{.heads = LinearHeads(h),
                        .convs = last_if(o.short_conv),
                        .rope_base = o.rope ? std::optional(o.rope_base) : std::nullopt,
                        .rule = retnet_rule(h),
                        .gate = silu_gate(o.output_gate),
                        .output_gradient = build.compute});
}

LinearRule memory_rule_of_retnet(const RuleBuild& b) { return retnet_rule(b.heads); }

std::vector<FieldInfo> options_of_retnet() { return describe<RetnetOptions>(); }

}  // namespace weft
