// Kimi delta attention: the delta rule on a state whose key channels decay each by itself.
//   M_t = (I - b_t k_t^T k_t) diag(e^{g_t}) M_{t-1} + b_t k_t^T v_t,   o_t = dk^{-1/2} q_t M_t
// with short convolutions on q, k, v, keys and queries of length one, b_t = sigmoid of a projection
// and g_t = -e^{A_log} softplus(f_b_proj f_a_proj x + dt_bias), A_log per head, the rest per
// channel.
//   y = o_proj( RMSNorm_head(o) * sigmoid(g_b_proj g_a_proj x) )
// A = e^{A_log} starts uniform in [1, 16] and dt_bias at the inverse softplus of steps spread
// logarithmically from 1e-3 to 1e-1, and no bias stands behind g_b_proj: as the kimi_linear model
// of transformers has it. (flash-linear-attention's layer starts dt_bias at zero, steps of 0.7 that
// forget nearly everything at once, and gives g_proj's second matrix a bias.) All else starts as in
// every mixer: normal, short convolutions uniform.
#include "layers/mixers/linear_delta.h"
#include "layers/recurrence/rank_one.h"

namespace weft {
namespace {

struct KdaOptions {
  int64_t heads = 0, dk = 0, dv = 0;
  int64_t gate_rank = 0;
  bool negative_eigenvalues = false;
  double norm_eps = 1e-5;
};

void fields(FieldVisitor& f, KdaOptions& c) {
  head_fields(f, c.heads, c.dk, c.dv);
  f("gate_rank", c.gate_rank, "rank of the projections of decays and output gate; 0: as dk",
    between(0, kLargestExtent));
  f("negative_eigenvalues", c.negative_eigenvalues,
    "beta = 2 sigmoid: a write may turn a value around");
  f("norm_eps", c.norm_eps, "epsilon of the output's norm", above(0));
}

LinearRule kda_rule(const Build& build, const HeadOptions& h, int64_t rank,
                    bool negative_eigenvalues) {
  const GateSpec decay{.stem = "f",
                       .name = "f_b_proj",
                       .down_name = "f_a_proj",
                       .width = h.dk,
                       .map = GateSpec::Map::kHeadDecay,
                       .rank = rank,
                       .slowest = 1.0};
  return {.gates = {write_strength(negative_eigenvalues, 2), decay},
          .core = with_unit_length(
              {h.heads, build.compute, build.compute},
              core_of<RankOneRecurrence, 3>({h.heads, h.dk, h.dv, key_scale(h.dk)}))};
}

}  // namespace

std::unique_ptr<Mixer> make_kda(const MixerBuild& build) {
  const auto o = read_options<KdaOptions>(build.options, "kda");
  const HeadOptions h = resolve(build, {.heads = o.heads, .dk = o.dk, .dv = o.dv});
  const int64_t rank = o.gate_rank == 0 ? h.dk : o.gate_rank;
  return std::make_unique<LinearMixer>(
      build, LinearSpec{.heads = LinearHeads(h),
                        .convs = Weights::kBeforeNorm,
                        .rule = kda_rule(build, h, rank, o.negative_eigenvalues),
                        .gate = {.name = "g_b_proj",
                                 .kind = kernels::GateActivation::kSigmoid,
                                 .rank = rank,
                                 .down = "g_a_proj"},
                        .finish = {.epsilon = static_cast<float>(o.norm_eps)}});
}

LinearRule memory_rule_of_kda(const RuleBuild& b) {
  LinearRule rule = kda_rule(b.build, b.heads, b.gate_rank, KdaOptions{}.negative_eigenvalues);
  std::swap(rule.gates[0], rule.gates[1]);  // the order of their weights
  return rule;
}

std::vector<FieldInfo> options_of_kda() { return describe<KdaOptions>(); }

}  // namespace weft
