// Gated (decaying) fast weights: the state decays by key channel and by value channel.
//   M_t = diag(e^{a_t}) M_{t-1} diag(e^{c_t}) + k_t^T v_t,   o_t = dk^{-1/2} q_t M_t
// a = logsigmoid(a_proj(x)) / 16, c = logsigmoid(c_proj(x)) / 16; gate_divisor = 1 gives the
// literal form, whose memory is short at the start. Query heads that share a key and a value share
// its decays, as in gla.
#include "layers/mixers/linear_decays.h"
#include "layers/recurrence/two_sided.h"

namespace weft {
namespace {

struct GfwOptions : DecayOptions {};

void fields(FieldVisitor& f, GfwOptions& c) {
  fields(f, c.heads);
  decay_fields(f, c);
}

LinearRule gfw_rule(const HeadOptions& h, double divisor) {
  GateSpec values = channel_decay("c", h.dv, divisor);
  values.slot = 1;
  return {.gates = {channel_decay("a", h.dk, divisor), values},
          .core = core_of<TwoSidedRecurrence, 2>({h, key_scale(h.dk)})};
}

}  // namespace

std::unique_ptr<Mixer> make_gfw(const MixerBuild& build) {
  auto o = read_options<GfwOptions>(build.options, "gfw");
  o.heads = resolve(build, o.heads);
  return std::make_unique<LinearMixer>(build,
                                       decay_spec(build, o, gfw_rule(o.heads, o.gate_divisor)));
}

LinearRule memory_rule_of_gfw(const RuleBuild& b) {
  return gfw_rule(b.heads, GfwOptions{}.gate_divisor);
}

std::vector<FieldInfo> options_of_gfw() { return describe<GfwOptions>(); }

}  // namespace weft
