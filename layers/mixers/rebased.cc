// Rebased: linear attention whose weight of key j for query i is (q_i . k_j)^2 / dk, normalized.
//   q^, k^ = LayerNorm(q), LayerNorm(k), one gamma and beta for both and all heads
//   phi(q^) . phi(k^) = (q^ . k^)^2 / dk
//   M_t = M_{t-1} + phi(k_t)^T v_t,   z_t = z_{t-1} + phi(k_t)
//   o_t = phi(q_t) M_t / (phi(q_t) . z_t + 1e-5),   y = o_proj(o)
#include "kernels/rows/rebased.h"
#include "layers/mixers/linear_features.h"
#include "layers/mixers/linear_mixer.h"

namespace weft {
namespace {

struct RebasedOptions {
  HeadOptions heads{.dk = 16};
};

void fields(FieldVisitor& f, RebasedOptions& c) { fields(f, c.heads); }

}  // namespace

std::unique_ptr<Mixer> make_rebased(const MixerBuild& build) {
  const HeadOptions h =
      resolve(build, read_options<RebasedOptions>(build.options, "rebased").heads);
  if (h.dk > kernels::kWidestRebased) {
    throw ConfigError(
        "{} = {}: the state has dk (dk + 1) / 2 rows per head; use at most {} (published: 16)",
        place_of(build.options, "dk"), h.dk, kernels::kWidestRebased);
  }
  return std::make_unique<LinearMixer>(build,
                                       LinearSpec{.heads = LinearHeads(h),
                                                  .rule = {.core = rebased_core(h)},
                                                  .finish = {.norm = FinishSpec::Norm::kNone}});
}

LinearRule memory_rule_of_rebased(const RuleBuild& b) { return {.core = rebased_core(b.heads)}; }

std::vector<FieldInfo> options_of_rebased() { return describe<RebasedOptions>(); }

}  // namespace weft
