#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"
#include "kernels/routing/router.h"

namespace weft::kernels {

// Weights of the chosen: their share of all, or their share of the chosen (renormalized softmax and
// softmax over the top k are the same numbers).
enum class ShareOf : uint8_t { kAll, kChosen };

struct RouteRule {
  int64_t experts, active, groups, kept_groups;
  float scale;
  ShareOf share;
};

struct RouteForward {
  RouteRule rule;
  ConstRows logits;
  const float* bias;  // may be absent
  float* probabilities;
  int32_t* index;
  float* weight;
  float* log_sum_exp;
  float* entropy;       // may be absent
  float* margin;        // may be absent
  bool index_given;     // then `index` is read
  bool by_probability;  // softmax: selection scores are probabilities, not logits
};

struct RouteBackward {
  RouteRule rule;
  ConstRows logits;  // sigmoid alone
  const float* probabilities;
  const int32_t* index;
  const float* weight;
  const float* log_sum_exp;
  const float* fraction;  // may be absent
  int64_t first, run;     // token r has row (first + r) / run of `fraction`
  const float* d_weight;
  Rows d_logits;
  float aux_scale, z_scale;
};

struct RouterTable {
  // Returns the first row with a logit that is not finite, or -1.
  int64_t (*softmax_forward)(const RouteForward&, int64_t begin, int64_t end);
  int64_t (*sigmoid_forward)(const RouteForward&, int64_t begin, int64_t end);
  void (*softmax_backward)(const RouteBackward&, int64_t begin, int64_t end);
  void (*sigmoid_backward)(const RouteBackward&, int64_t begin, int64_t end);
};
const RouterTable& table(IsaTag<Isa::kPlain>, const RouterTable*);
const RouterTable& table(IsaTag<Isa::kAvx2>, const RouterTable*);
const RouterTable& table(IsaTag<Isa::kAvx512>, const RouterTable*);

}  // namespace weft::kernels
