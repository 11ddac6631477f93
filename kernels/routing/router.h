#pragma once

#include <span>
#include <vector>

#include "core/memory/exec.h"

// The router's choice and the order in which experts see tokens. Everything in f32 or integers.
namespace weft::kernels {

// kSoftmax: softmax, then the best k.  kTopkSoftmax: the best k, then softmax over those.
// kSigmoid: the best k of sigmoid(logit) + bias, weighed by the sigmoid without the bias.
enum class RouterMode : uint8_t { kSoftmax, kTopkSoftmax, kSigmoid };

struct Router {
  RouterMode mode = RouterMode::kSoftmax;
  bool renormalize = false;  // divide by the sum of the chosen (kTopkSoftmax always does)
  int64_t active = 1;        // k
  float scale = 1.0f;        // kSigmoid: factor on the weights
  // Experts lie in `groups` equal groups (at most 64); a token may choose from the
  // `kept_groups` groups whose two best selection scores have the largest sum. Selection scores are
  // probabilities, logits or biased sigmoids, by mode.
  int64_t groups = 1, kept_groups = 1;
};

// What a router decides for n tokens, all contiguous.
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
};

enum class Choice : uint8_t { kMade, kGiven };  // kGiven: `index` is read, weights follow from it
struct RouterInput {
  ConstView logits;     // [n, experts]
  ConstView bias = {};  // [experts], kSigmoid; absent: 0
  Choice choice = Choice::kMade;
};

// Returns the first token with a logit that is not finite, or -1.
int64_t route_forward(Exec& exec, const Router& router, const RouterInput& in, const Routed& out);

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

// The n * k (token, choice) pairs sorted by expert, then by token, then by choice. A pair whose
// expert is negative, or beyond the capacity of its expert, has no row.
struct ExpertOrder {
  std::vector<int64_t> offsets;  // [experts + 1]: rows of expert e are offsets[e] .. offsets[e + 1]
  Tensor token;                  // i32 [rows]: sorted row -> token
  Tensor row;                    // i32 [n, k]: pair -> sorted row, or -1
};
ExpertOrder order_by_expert(Exec& exec, ConstView index, int64_t experts);

// The order of the pairs that stay when no expert takes more than `capacity`: its first ones, or
// those of the largest weight [n, k] (ties: the lower token).
enum class Keep : uint8_t { kFirst, kHeaviest };
ExpertOrder limited(Exec& exec, const ExpertOrder& order, ConstView weight, int64_t capacity,
                    Keep keep);

// sorted [rows] = values [n, k] in sorted order (f32), and back; 0 for a pair without a row.
void permute_pairs(Exec& exec, const ExpertOrder& order, ConstView values, View sorted);
void unpermute_pairs(Exec& exec, const ExpertOrder& order, ConstView sorted, View values);

// y [n, d] (+)= sum over k of rows [rows, d] at row[n, k], in the order of k. y f32 or bf16.
enum class Combine : uint8_t { kReplace, kAccumulate };
void combine_rows(Exec& exec, const ExpertOrder& order, ConstView rows, View y,
                  Combine write = Combine::kReplace);

// column_mean [experts] = mean over rows of p [n, experts]; same bits for any number of threads
void column_mean(Exec& exec, ConstView p, View mean);

}  // namespace weft::kernels
