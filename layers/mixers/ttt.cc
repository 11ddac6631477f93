// TTT with a linear inner model: the state is a matrix that learns, token by token, to give a value
// for a key.   M_t = M_{t-1} - eta_t k_t^T (k_t A_t - v_t),   o_t = dk^{-1/2} q_t M_t
// eta_t = eta_base * sigmoid of a projection; A_t is M at the start of the token's mini-batch. With
// mini-batches of one token it is DeltaNet with beta = eta.
// With inner_norm the inner model is k + LayerNorm(k M + n) (TTT-Linear;
// layers/mixers/linear_descent.h): not affine in its state, so that sequence ranks run one after
// the other, and mini-batches too.
#include "layers/mixers/linear_descent.h"

namespace weft {
namespace {

struct TttOptions {
  int64_t heads = 0, dk = 0, dv = 0;
  double eta_base = 1.0;
  int64_t mini_batch = 1;
  bool output_gate = true;
  bool inner_norm = false;
};
constexpr int64_t kNormMiniBatch = 16;

void fields(FieldVisitor& f, TttOptions& c) {
  head_fields(f, c.heads, c.dk, c.dv);
  f("eta_base", c.eta_base, "largest learning rate of the inner model", above(0));
  f("mini_batch", c.mini_batch,
    "tokens whose gradients are taken at the same inner model; with inner_norm 16 by default, one "
    "mini-batch runs after the other, and 1 is a loop over tokens: no faster form of it is known",
    between(1, kLargestExtent));
  f("output_gate", c.output_gate, "multiply the output by silu of a projection of the input");
  f("inner_norm", c.inner_norm,
    "a LayerNorm inside the inner loss, dk = dv: not affine, sequence ranks hand the state round");
}

TttOptions read(const OptionTable& options) {
  auto o = read_options<TttOptions>(options, "ttt");
  if (o.inner_norm && !options.has("mini_batch")) o.mini_batch = kNormMiniBatch;
  return o;
}

}  // namespace

std::string remark_on_ttt(const OptionTable& options) {
  const TttOptions o = read(options);
  if (!o.inner_norm || o.mini_batch > 1) return "";
  return fmt::format(
      "inner_norm with mini_batch = 1 is not affine and runs token by token, slowly; mini_batch = "
      "{} "
      "runs as products of matrices",
      kNormMiniBatch);
}

std::unique_ptr<Mixer> make_ttt(const MixerBuild& build) {
  const TttOptions o = read(build.options);
  const HeadOptions heads = resolve(build, {.heads = o.heads, .dk = o.dk, .dv = o.dv});
  if (o.inner_norm && heads.dk != heads.dv) {
    throw ConfigError(
        "{} = {}: a model with inner_norm regresses values on keys of the same width, dk = {}; the "
        "nearest that works is dv = {}",
        place_of(build.options, "dv"), heads.dv, heads.dk, heads.dk);
  }
  LinearSpec spec{.heads = LinearHeads(heads),
                  .rule = {.gates = {descent_gate("eta", 0, 0.0)},
                           .core = descent_core(build.compute, heads, o.mini_batch)},
                  .gate = silu_gate(o.output_gate)};
  spec.rule.gates[0].factor = static_cast<float>(o.eta_base);
  if (o.inner_norm) {
    spec.rule.core = inner_norm_core(heads, o.mini_batch);
    spec.core_weights = Weights::kLast;
  }
  return std::make_unique<LinearMixer>(build, std::move(spec));
}

LinearRule memory_rule_of_ttt(const RuleBuild& b) {
  return {.gates = {descent_gate("eta", 0, 0.0)},
          .core = descent_core(b.build.compute, b.heads, 1)};
}

std::vector<FieldInfo> options_of_ttt() { return describe<TttOptions>(); }

}  // namespace weft
