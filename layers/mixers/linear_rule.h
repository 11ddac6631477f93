#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "kernels/gates/activation.h"
#include "layers/context/mixer.h"
#include "layers/mixers/linear_core.h"

namespace weft {

// A gate: numbers per head and token that a recurrence reads beside q, k and v, from a projection
// of x. Computed in f32 from their projection on: decays are exponents, and their gradients sums
// over all tokens in which much cancels.
struct GateSpec {
  enum class Map : uint8_t {
    kPlain,
    kSigmoid,     // factor * sigmoid(z)
    kLogSigmoid,  // max(logsigmoid(z) / factor, floor)
    kMinusExp,    // -e^z
    kHeadDecay,   // -e^{A_log} softplus(z + dt_bias), A_log per head
    kTimeStep,    // softplus(z + dt_bias)
    kCapped,      // factor * tanh(z / factor)
  };
  enum class Bias : uint8_t {
    kNone,
    kOfProjection,
    kExact,  // gradient summed in f32: little is left of terms that cancel
  };
  // Its projection is <stem>_proj, or of low rank <stem>_proj.0 [rank, hidden], then <stem>_proj.1;
  // memories that share one call it shared_<stem>. A layer may have other names for them.
  std::string stem;
  std::string name = {}, down_name = {};
  size_t slot = 0;    // place among the gates of the core
  int64_t width = 1;  // numbers per head
  Map map = Map::kPlain;
  float factor = 1.0f;
  float floor = -3.0e38f;
  Init init = Init::normal(kInitDeviation);
  Bias bias = Bias::kNone;
  Init bias_init = Init::zeros();
  int64_t rank = 0;  // not 0: low rank
  Init down_init = Init::normal(kInitDeviation);
  kernels::Activation between = kernels::Activation::kIdentity;  // the two
  double slowest = 0.0;  // kHeadDecay: e^{A_log} starts uniform between this and 16

  std::string weight_name() const {
    return !name.empty() ? name : stem + (rank > 0 ? "_proj.1" : "_proj");
  }
  std::string down_weight_name() const { return !down_name.empty() ? down_name : stem + "_proj.0"; }
};

// How a state is written and read: the gates of a recurrence, and the core that reads them. A mixer
// runs its rule over the tokens of a layer (linear_mixer.h), mixtures of memories over the tokens
// that were sent to each of them (memory_mixer.h).
struct LinearRule {
  std::vector<GateSpec> gates = {};
  // Instead of gates: one log decay per head that is the same for all tokens. Empty: none.
  std::vector<float> log_decay = {};
  CoreMaker core = {};
  // The rows of k are not keys but forget gates: no convolution reads them in memories.
  bool keys_are_gates = false;
};

inline float key_scale(int64_t dk) { return 1.0f / std::sqrt(static_cast<float>(dk)); }

// For the rule of a memory, which has no options of its own but the rank of gates of low rank.
struct RuleBuild {
  const Build& build;
  HeadOptions heads;  // resolved, as many kv heads as heads
  int64_t gate_rank = 0;
};

// The rule of the mixer of that name, as memories have it; in the mixer's own file where it can be.
using MemoryRule = LinearRule (*)(const RuleBuild&);
MemoryRule memory_rule(const std::string& name);
LinearRule memory_rule_of_bla(const RuleBuild& b);
LinearRule memory_rule_of_deltanet(const RuleBuild& b);
LinearRule memory_rule_of_gated_deltanet(const RuleBuild& b);
LinearRule memory_rule_of_gateloop(const RuleBuild& b);
LinearRule memory_rule_of_gfw(const RuleBuild& b);
LinearRule memory_rule_of_gla(const RuleBuild& b);
LinearRule memory_rule_of_gsa(const RuleBuild& b);
LinearRule memory_rule_of_hgrn2(const RuleBuild& b);
LinearRule memory_rule_of_kda(const RuleBuild& b);
LinearRule memory_rule_of_lightning(const RuleBuild& b);
LinearRule memory_rule_of_mamba2(const RuleBuild& b);
LinearRule memory_rule_of_mlstm(const RuleBuild& b);
LinearRule memory_rule_of_rebased(const RuleBuild& b);
LinearRule memory_rule_of_retnet(const RuleBuild& b);
LinearRule memory_rule_of_rwkv6(const RuleBuild& b);
LinearRule memory_rule_of_rwkv7(const RuleBuild& b);
LinearRule memory_rule_of_titans(const RuleBuild& b);
LinearRule memory_rule_of_ttt(const RuleBuild& b);

}  // namespace weft
