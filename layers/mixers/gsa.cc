// Gated slot attention: keys and values are written to a few slots that forget, and the slots are
// read by softmax.   With a = e^{g_t}, w = 1 - a:
//   K_t = diag(a) K_{t-1} + w^T k_t,   V_t = diag(a) V_{t-1} + w^T v_t
//   o_t = softmax(K_t q_t^T) V_t
//   y = o_proj( RMSNorm( silu(o) ) ), the norm over all heads at once
// q, k, v are silu of projections; g = logsigmoid(f_proj(x)) / 8, one per slot.
#include "layers/mixers/linear_mixer.h"
#include "layers/recurrence/slots.h"

namespace weft {
namespace {

struct GsaOptions {
  HeadOptions heads;
  int64_t slots = 0;
  double gate_divisor = 8.0;
};

void fields(FieldVisitor& f, GsaOptions& c) {
  fields(f, c.heads);
  f("slots", c.slots, "slots of a head's memory; 0: dk", between(0, kLargestExtent));
  f("gate_divisor", c.gate_divisor, "log decays are logsigmoid / this", above(0));
}

LinearRule gsa_rule(const HeadOptions& h, int64_t slots, double divisor) {
  return {.gates = {{.stem = "f",
                     .width = slots,
                     .map = GateSpec::Map::kLogSigmoid,
                     .factor = static_cast<float>(divisor)}},
          .core = core_of<SlotsRecurrence, 1>({h, slots, 1.0f})};
}

}  // namespace

std::unique_ptr<Mixer> make_gsa(const MixerBuild& build) {
  const auto o = read_options<GsaOptions>(build.options, "gsa");
  const HeadOptions h = resolve(build, o.heads);
  const int64_t slots = o.slots == 0 ? h.dk : o.slots;
  return std::make_unique<LinearMixer>(build,
                                       LinearSpec{.heads = LinearHeads(h),
                                                  .map = kernels::Activation::kSilu,
                                                  .mapped = LinearSpec::Mapped::kQKV,
                                                  .rule = gsa_rule(h, slots, o.gate_divisor),
                                                  .gates = LinearGates::Projected::kAmongRows,
                                                  .finish = {.norm = FinishSpec::Norm::kJoint,
                                                             .name = "g_norm.weight",
                                                             .epsilon = build.norm_epsilon,
                                                             .before = kernels::Activation::kSilu},
                                                  .output_gradient = build.compute});
}

LinearRule memory_rule_of_gsa(const RuleBuild& b) {
  return gsa_rule(b.heads, b.heads.dk, GsaOptions{}.gate_divisor);
}

std::vector<FieldInfo> options_of_gsa() { return describe<GsaOptions>(); }

}  // namespace weft
