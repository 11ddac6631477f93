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
inline GateSpec channel_decay(const char* stem, int64_t width, double divisor = 16.0) {
  return {.stem = stem,
          .width = width,
          .map = GateSpec::Map::kLogSigmoid,
          .factor = static_cast<float>(divisor),
          .bias = GateSpec::Bias::kOfProjection};
}

inline LinearSpec decay_spec(const MixerBuild& build, const DecayOptions& o, LinearRule rule) {
  return {.heads = LinearHeads(o.heads),
          .convs = last_if(o.short_conv),
          .rule = std::move(rule),
          .gate = silu_gate(o.output_gate),
          .output_gradient = build.compute};
}

}  // namespace weft
