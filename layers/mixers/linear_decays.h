#pragma once

#include "layers/mixers/linear_mixer.h"

namespace weft {

// Options of mixers whose state decays by channel: gla, gfw, gateloop.
struct DecayOptions {
  HeadOptions heads;
  double gate_divisor = 16.0;
  bool short_conv = false;
  bool output_gate = true;
};
inline void decay_fields(FieldVisitor& f, DecayOptions& c) {
  f("gate_divisor", c.gate_divisor, "log decays are logsigmoid / this", above(0));
  f("short_conv", c.short_conv, kShortConvHelp);
  f("output_gate", c.output_gate, "multiply the output by silu of a projection of the input");
}

// A log decay per channel, logsigmoid / divisor of a projection with a bias.
inline GateSpec channel_decay(const char* name, int64_t width, double divisor) {
  return {.name = name,
          .width = width,
          .map = GateSpec::Map::kLogSigmoid,
          .factor = static_cast<float>(divisor),
          .bias = GateSpec::Bias::kOfProjection};
}

// All but the gates.
inline LinearSpec decay_spec(const MixerBuild& build, const DecayOptions& o, CoreMaker core) {
  return {.heads = LinearHeads(o.heads),
          .convs = last_if(o.short_conv),
          .core = std::move(core),
          .gate = silu_gate(o.output_gate),
          .output_gradient = build.compute};
}

}  // namespace weft
