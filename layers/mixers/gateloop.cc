// GateLoop: a complex decay per key channel and token.
//   M_t = diag(e^{g_t + i p_t}) M_{t-1} + k_t^T v_t,   o_t = dk^{-1/2} Re(q_t M_t)
// g = logsigmoid(a_proj(x)) / 16, p = p_proj(x) in radians. The phases start small but not at zero,
// where their gradient would vanish.
#include "layers/mixers/linear_decays.h"
#include "layers/recurrence/complex_diagonal.h"

namespace weft {
namespace {

struct GateloopOptions : DecayOptions {};

void fields(FieldVisitor& f, GateloopOptions& c) {
  head_fields(f, c.heads.heads, c.heads.dk, c.heads.dv);
  decay_fields(f, c);
}

LinearRule gateloop_rule(const HeadOptions& h, double divisor) {
  const GateSpec phase{
      .stem = "p", .slot = 1, .width = h.dk, .bias = GateSpec::Bias::kOfProjection};
  return {.gates = {channel_decay("a", h.dk, divisor), phase},
          .core = core_of<ComplexDiagonalRecurrence, 2>({h, key_scale(h.dk)})};
}

}  // namespace

std::unique_ptr<Mixer> make_gateloop(const MixerBuild& build) {
  auto o = read_options<GateloopOptions>(build.options, "gateloop");
  o.heads = resolve(build, o.heads);
  return std::make_unique<LinearMixer>(
      build, decay_spec(build, o, gateloop_rule(o.heads, o.gate_divisor)));
}

LinearRule memory_rule_of_gateloop(const RuleBuild& b) {
  return gateloop_rule(b.heads, GateloopOptions{}.gate_divisor);
}

std::vector<FieldInfo> options_of_gateloop() { return describe<GateloopOptions>(); }

}  // namespace weft
