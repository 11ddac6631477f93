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

}  // namespace

std::unique_ptr<Mixer> make_gla(const MixerBuild& build) {
  auto o = read_options<GlaOptions>(build.options, "gla");
  const HeadOptions h = o.heads = resolve(build, o.heads);
  GateSpec decay = channel_decay("gk_proj.1", h.dk, o.gate_divisor);
  decay.rank = o.gate_rank;
  decay.down = "gk_proj.0";
  decay.down_init = gate_init(build.hidden, o.gate_rank);
  decay.init = gate_init(o.gate_rank, build.whole(h.kv_heads * h.dk, h.kv_replicas));
  if (o.gate_floor < 0) decay.floor = static_cast<float>(o.gate_floor);
  LinearSpec spec = decay_spec(build, o, core_of<DiagonalRecurrence, 1>({h, key_scale(h.dk)}));
  spec.gates = {decay};
  return std::make_unique<LinearMixer>(build, std::move(spec));
}

std::vector<FieldInfo> options_of_gla() { return describe<GlaOptions>(); }

}  // namespace weft
