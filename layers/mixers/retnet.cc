// RetNet: a fixed decay per head.   M_t = a_h M_{t-1} + k_t^T v_t,   o_t = dk^{-1/2} q_t M_t
// with a_h = 1 - 2^{-5-h}, h counted over all heads of the layer, and rotated q and k.
#include <cmath>

#include "layers/mixers/shell.h"
#include "layers/recurrence/fixed_decays.h"

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

}  // namespace

std::unique_ptr<Mixer> make_retnet(const MixerBuild& build) {
  const auto o = read_options<RetnetOptions>(build.options, "retnet");
  ScalarRule rule{.heads = resolve(build, o.heads),
                  .short_conv = o.short_conv,
                  .rope = o.rope,
                  .rope_base = o.rope_base,
                  .output_gate = o.output_gate};
  if (o.rope) check_rotary(build, rule.heads.dk, rule.heads.dk);
  rule.scale = 1.0f / std::sqrt(static_cast<float>(rule.heads.dk));
  rule.log_decay = rule.heads.here(retnet_log_decays(rule.heads.all_heads));
  return std::make_unique<ScalarShell>(build, std::move(rule));
}

std::vector<FieldInfo> options_of_retnet() { return describe<RetnetOptions>(); }

}  // namespace weft
