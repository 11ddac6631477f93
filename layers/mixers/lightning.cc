// Lightning attention.   M_t = e^{-s_h f} M_{t-1} + silu(k_t)^T v_t,   o_t = silu(q_t) M_t
// with ALiBi's slopes s_h and a factor f of the layer.
#include "layers/mixers/shell.h"
#include "layers/recurrence/fixed_decays.h"

namespace weft {
namespace {

struct LightningOptions {
  HeadOptions heads;
  double layer_factor = 1.0;
  bool layer_decay = false;
  bool output_gate = true;
};

void fields(FieldVisitor& f, LightningOptions& c) {
  fields(f, c.heads);
  f("layer_factor", c.layer_factor, "multiplies the slopes of every head", at_least(0));
  f("layer_decay", c.layer_decay, "multiply layer_factor by 1 - l / (L - 1) + 1e-5 for layer l of L");
  f("output_gate", c.output_gate, "multiply the output by silu of a projection of the input");
}

}  // namespace

std::unique_ptr<Mixer> make_lightning(const MixerBuild& build) {
  const auto o = read_options<LightningOptions>(build.options, "lightning");
  ScalarRule rule{.heads = resolve(build, o.heads),
                  .feature_map = kernels::Activation::kSilu,
                  .output_gate = o.output_gate};
  double factor = o.layer_factor;
  if (o.layer_decay && build.layers > 1) {
    factor *= 1.0 - static_cast<double>(build.layer) / static_cast<double>(build.layers - 1) + 1e-5;
  }
  rule.log_decay = rule.heads.here(alibi_log_decays(rule.heads.all_heads, factor));
  return std::make_unique<ScalarShell>(build, std::move(rule));
}

std::vector<FieldInfo> options_of_lightning() { return describe<LightningOptions>(); }

}  // namespace weft
