// mLSTM. q, k, v and two gates per head, i = 15 tanh(igate(x) / 15) and f = 15 tanh(fgate(x) / 15);
// with l = logsigmoid(f) and s = dk^{-1/2}:
//   C_t = e^{l_t} C_{t-1} + e^{i_t} k_t^T v_t,   n_t = e^{l_t} n_{t-1} + e^{i_t} k_t
//   h_t = s q_t C_t / max(|s q_t . n_t|, 1)      (stabilised, see layers/recurrence/mlstm.h)
//   y = o_proj( sigmoid(ogate(x)) * LayerNorm_head(h) )
#include "layers/recurrence/mlstm.h"
#include "layers/mixers/linear_mixer.h"

namespace weft {
namespace {

struct MlstmOptions {
  int64_t heads = 0, dk = 0, dv = 0;
};

void fields(FieldVisitor& f, MlstmOptions& c) { head_fields(f, c.heads, c.dk, c.dv); }

// Forget gates start open, the more so the later the head: linspace(3, 6).
Init forget_bias(int64_t heads) {
  return Init::each([heads](int64_t n) {  // of one memory after the other
    return heads == 1 ? 3.0
                      : 3.0 + 3.0 * static_cast<double>(n % heads) / static_cast<double>(heads - 1);
  });
}

// Projections start at zero, so that gates start at their biases. The gradients of these are summed
// in f32: shifting all input gates of a head changes next to nothing.
GateSpec capped(const char* stem, const char* name, size_t slot, const Init& start) {
  return {.stem = stem,
          .name = name,
          .slot = slot,
          .map = GateSpec::Map::kCapped,
          .factor = 15.0f,
          .init = Init::zeros(),
          .bias = GateSpec::Bias::kExact,
          .bias_init = start};
}

LinearRule mlstm_rule(const HeadOptions& h) {
  return {.gates = {capped("i", "igate", 0, Init::normal(0.1)),
                    capped("f", "fgate", 1, forget_bias(h.all_heads))},
          .core = core_of<MlstmRecurrence, 2>({h.heads, h.dk, h.dv, key_scale(h.dk)})};
}

}  // namespace

std::unique_ptr<Mixer> make_mlstm(const MixerBuild& build) {
  const auto o = read_options<MlstmOptions>(build.options, "mlstm");
  const HeadOptions h = resolve(build, {o.heads, o.heads, o.dk, o.dv});
  return std::make_unique<LinearMixer>(
      build, LinearSpec{.heads = LinearHeads(h),
                        .rule = mlstm_rule(h),
                        .gate = {.name = "ogate", .kind = kernels::GateActivation::kSigmoid},
                        .finish = {.norm = FinishSpec::Norm::kCentered,
                                   .name = "norm.weight",
                                   .epsilon = 1e-6f}});
}

LinearRule memory_rule_of_mlstm(const RuleBuild& b) { return mlstm_rule(b.heads); }

std::vector<FieldInfo> options_of_mlstm() { return describe<MlstmOptions>(); }

}  // namespace weft
