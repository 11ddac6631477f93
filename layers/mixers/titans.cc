// Titans with a linear memory: TTT whose descent has momentum and forgets.
//   S_t = eta_t S_{t-1} - theta_t k_t^T (k_t A_t - v_t)
//   M_t = (1 - alpha_t) M_{t-1} + S_t,   o_t = dk^{-1/2} q_t M_t
// theta, alpha, eta are sigmoids of projections; A_t is M at the start of the token's mini-batch.
#include "layers/mixers/linear_descent.h"

namespace weft {
namespace {

struct TitansOptions {
  int64_t heads = 0, dk = 0, dv = 0;
  int64_t mini_batch = 1;
  bool output_gate = true;
};

void fields(FieldVisitor& f, TitansOptions& c) {
  head_fields(f, c.heads, c.dk, c.dv);
  f("mini_batch", c.mini_batch, "tokens whose gradients are taken at the same memory",
    between(1, kLargestExtent));
  f("output_gate", c.output_gate, "multiply the output by silu of a projection of the input");
}

LinearRule titans_rule(const HeadOptions& h, int64_t mini_batch) {
  return {.gates = {descent_gate("theta", 0, 0.0), descent_gate("alpha", 1, -4.0),
                    descent_gate("eta", 2, 0.0)},
          .core = momentum_core(h, mini_batch)};
}

}  // namespace

std::unique_ptr<Mixer> make_titans(const MixerBuild& build) {
  const auto o = read_options<TitansOptions>(build.options, "titans");
  const HeadOptions h = resolve(build, {.heads = o.heads, .dk = o.dk, .dv = o.dv});
  LinearSpec spec{.heads = LinearHeads(h),
                  .rule = titans_rule(h, o.mini_batch),
                  .gate = silu_gate(o.output_gate)};
  return std::make_unique<LinearMixer>(build, std::move(spec));
}

LinearRule memory_rule_of_titans(const RuleBuild& b) { return titans_rule(b.heads, 1); }

std::vector<FieldInfo> options_of_titans() { return describe<TitansOptions>(); }

}  // namespace weft
