#include "layers/mixers/linear_delta.h"

#include "layers/recurrence/delta.h"

namespace weft {

GateSpec write_strength(bool negative_eigenvalues, size_t slot) {
  return {.stem = "b",
          .slot = slot,
          .map = GateSpec::Map::kSigmoid,
          .factor = negative_eigenvalues ? 2.0f : 1.0f};
}

LinearRule delta_rule(DType compute, const HeadOptions& h, int64_t value_heads,
                      bool negative_eigenvalues) {
  return {.gates = {write_strength(negative_eigenvalues)},
          .core = with_unit_length({h.heads, compute, compute},
                                   core_of<DeltaRecurrence, 2>({.heads = value_heads,
                                                                .qk_heads = h.heads,
                                                                .dk = h.dk,
                                                                .dv = h.dv,
                                                                .scale = key_scale(h.dk)}))};
}

LinearSpec delta_spec(const MixerBuild& build, const DeltaOptions& o) {
  const HeadOptions& h = o.heads;
  LinearSpec spec{.heads = LinearHeads(h, o.value_heads),
                  .convs = o.short_conv ? Weights::kBeforeNorm : Weights::kNone,
                  .rule = delta_rule(build.compute, h, o.value_heads, o.negative_eigenvalues),
                  .gate = silu_gate(o.output_gate)};
  if (!o.short_conv) {
    spec.map = kernels::Activation::kSilu;
    spec.mapped = LinearSpec::Mapped::kQKV;
  }
  return spec;
}

}  // namespace weft
