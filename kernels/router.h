#pragma once

#include <span>
#include <vector>

#include "core/exec.h"

// The router's choice and the order in which experts see tokens. Everything in f32 or integers.
namespace weft::kernels {

enum class RouterMode : uint8_t { kSoftmax, kTopkSoftmax };
struct Router {
  RouterMode mode = RouterMode::kSoftmax;  // softmax then top-k, or top-k then softmax
  bool renormalize = false;                // kSoftmax: divide by the sum of the chosen
  int64_t active = 1;                      // k
};

// logits [n, experts] -> probabilities [n, experts] (softmax), index [n, k] (i32, best first, ties
// to the lower index), weight [n, k]; log_sum_exp [n]. Returns the first token with a logit that is
// not finite, or -1.
int64_t route_forward(Exec& exec, const Router& router, ConstView logits, View probabilities,
                      View index, View weight, View log_sum_exp);

// d_logits [n, experts] from d_weight [n, k], plus the balance loss's term
// aux_scale * p_nj (fraction_j - sum_e fraction_e p_ne) with fraction [experts], plus the z loss's
// term z_scale * lse_n p_nj.
struct RouterBackward {
  float aux_scale = 0.0f;
  float z_scale = 0.0f;
};
void route_backward(Exec& exec, const Router& router, const RouterBackward& scales,
                    ConstView probabilities, ConstView index, ConstView weight,
                    ConstView log_sum_exp, ConstView fraction, ConstView d_weight, View d_logits);

// The n * k (token, choice) pairs sorted by expert, then by token, then by choice.
struct ExpertOrder {
  std::vector<int64_t> offsets;  // [experts + 1]: rows of expert e are offsets[e] .. offsets[e + 1]
  Tensor token;                  // i32 [n * k]: sorted row -> token
  Tensor row;                    // i32 [n, k]: pair -> sorted row
};
ExpertOrder order_by_expert(Exec& exec, ConstView index, int64_t experts);

// sorted [n * k] = values [n, k] in sorted order (f32), and back.
void permute_pairs(Exec& exec, const ExpertOrder& order, ConstView values, View sorted);
void unpermute_pairs(Exec& exec, const ExpertOrder& order, ConstView sorted, View values);

// y [n, d] (+)= sum over k of rows [n * k, d] at row[n, k], in the order of k. y f32 or bf16.
enum class Combine : uint8_t { kReplace, kAccumulate };
void combine_rows(Exec& exec, const ExpertOrder& order, ConstView rows, View y,
                  Combine write = Combine::kReplace);

// column_mean [experts] = mean over rows of p [n, experts]; same bits for any number of threads
void column_mean(Exec& exec, ConstView p, View mean);

}  // namespace weft::kernels
