// Gated linear attention.   M_t = diag(e^{g_t}) M_{t-1} + k_t^T v_t,   o_t = dk^{-1/2} q_t M_t
// with a log decay per key channel from a projection of low rank, g = logsigmoid(gk_proj(x)) / 16.
//   y = o_proj( RMSNorm_head(o) * silu(g_proj(x)) )
#include "layers/mixers/linear_decays.h"
#include "layers/recurrence/diagonal.h"

namespace weft {
namespace {

struct GlaOptions : DecayOptions {
  int64_t gate_rank = 16;
  double gate_floor = 0.0;
};

void fields(FieldVisitor& f, GlaOptions& c) {
  fields(f, c.heads);
  f("gate_rank", c.gate_rank, "rank of the projection that gives the decays",
    between(1, kLargestExtent));
  f("gate_floor", c.gate_floor, "smallest log decay; 0: none", {.max = 0});
  decay_fields(f, c);
}

// Published: xavier uniform with gain 2^{-5/2}.
Init gate_init(int64_t in, int64_t out) {
  const double limit = std::exp2(-2.5) * std::sqrt(6.0 / static_cast<double>(in + out));
  return Init::uniform(-limit, limit);
}

GateSpec decay_of(const Build& build, const HeadOptions& h, int64_t rank, double divisor) {
  GateSpec decay = channel_decay("gk", h.dk, divisor);
  decay.rank = rank;
  decay.down_init = gate_init(build.hidden, rank);
  decay.init = gate_init(rank, build.whole(h.kv_heads * h.dk, h.kv_replicas));
  return decay;
}

LinearRule gla_rule(const HeadOptions& h, const GateSpec& decay) {
  return {.gates = {decay}, .core = core_of<DiagonalRecurrence, 1>({h, key_scale(h.dk)})};
}

}  // namespace

std::unique_ptr<Mixer> make_gla(const MixerBuild& build) {
  auto o = read_options<GlaOptions>(build.options, "gla");
  o.heads = resolve(build, o.heads);
  GateSpec decay = decay_of(build, o.heads, o.gate_rank, o.gate_divisor);
  if (o.gate_floor < 0) decay.floor = static_cast<float>(o.gate_floor);
  return std::make_unique<LinearMixer>(build, decay_spec(build, o, gla_rule(o.heads, decay)));
}

LinearRule memory_rule_of_gla(const RuleBuild& b) {
  return gla_rule(b.heads, decay_of(b.build, b.heads, b.gate_rank, GlaOptions{}.gate_divisor));
}

std::vector<FieldInfo> options_of_gla() { return describe<GlaOptions>(); }

}  // namespace weft
