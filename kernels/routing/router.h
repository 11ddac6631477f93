#pragma once

#include "core/memory/exec.h"

// The router's choice of experts. Everything in f32 or integers.
namespace weft::kernels {

// kSoftmax: softmax, then the best k.  kTopkSoftmax: the best k, then softmax over those.
// kSigmoid: the best k of sigmoid(logit) + bias, weighed by the sigmoid without the bias.
enum class RouterMode : uint8_t { kSoftmax, kTopkSoftmax, kSigmoid };

inline constexpr int64_t kMostGroups = 64;
struct Router {
  RouterMode mode = RouterMode::kSoftmax;
  bool renormalize = false;  // divide by the sum of the chosen (kTopkSoftmax always does)
  int64_t active = 1;        // k
  float scale = 1.0f;        // kSigmoid: factor on the weights
  // Experts lie in `groups` equal groups (at most kMostGroups); a token may choose from the
  // `kept_groups` groups whose two best selection scores have the largest sum. Selection scores are
  // probabilities, logits or biased sigmoids, by mode.
  int64_t groups = 1, kept_groups = 1;
};

// Choices of a router for n tokens, all contiguous.
struct Routed {
  View probabilities;  // [n, experts]: softmax, or the sigmoids over their sum
  View index;          // i32 [n, k], best first, ties to the lower index
  View weight;         // [n, k]
  View log_sum_exp;    // [n], of the logits
  View entropy = {};   // [n], of the probabilities, in nats; may be absent
  // [n], by how much the choice was made: the logit (biased sigmoid) of the last expert chosen
  // minus that of the best one left, or the score of the last group kept minus that of the next, if
  // that is less; infinite where nothing was left or the choice was given. May be absent.
  View margin = {};
  View bad_token =
      {};  // i64 [1]: first token with a logit that is not finite, or -1; may be absent
};

enum class Choice : uint8_t { kMade, kGiven };  // kGiven: `index` is read, weights follow from it
struct RouterInput {
  ConstView logits;     // [n, experts]
  ConstView bias = {};  // [experts], kSigmoid; absent: 0
  Choice choice = Choice::kMade;
};
void route_forward(Exec& exec, const Router& router, const RouterInput& in, const Routed& out);

// d_logits [n, experts] from d_weight [n, k], plus the balance loss's term, the gradient of
// aux_scale * sum_e fraction_e p_ne, plus the z loss's, that of z_scale / 2 * log_sum_exp_n^2. Runs
// of tokens have a row of `fraction` [runs, experts] each: token n that of run (first + n) / run.
struct RouterGradient {
  ConstView d_weight;
  ConstView fraction = {};  // may be absent when aux_scale is 0
  float aux_scale = 0.0f;
  float z_scale = 0.0f;
  int64_t first = 0, run = 0;  // run 0: the tokens are equal runs
};
void route_backward(Exec& exec, const Router& router, ConstView logits, const Routed& routed,
                    const RouterGradient& gradient, View d_logits);

}  // namespace weft::kernels
