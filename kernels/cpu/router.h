#pragma once

#include "kernels/by_isa.h"
#include "kernels/cpu/rows.h"

namespace weft::kernels {

// Weights of the chosen: their share of all, or their share of the chosen (renormalized softmax and
// softmax over the top k are the same numbers).
enum class ShareOf : uint8_t { kAll, kChosen };

struct RouteForward {
  ConstRows logits;
  float* probabilities;
  int32_t* index;
  float* weight;
  float* log_sum_exp;
  int64_t experts, active;
  ShareOf share;
};

struct RouteBackward {
  const float* probabilities;
  const int32_t* index;
  const float* weight;
  const float* log_sum_exp;
  const float* fraction;  // may be absent
  const float* d_weight;
  Rows d_logits;
  int64_t experts, active;
  ShareOf share;
  float aux_scale, z_scale;
};

struct CombineArgs {
  const int32_t* row;  // [tokens, active]
  ConstRows rows;
  Rows y;
  int64_t active, width;
  bool accumulate;
};

struct RouterTable {
  // Returns the first row with a logit that is not finite, or -1.
  int64_t (*forward)(const RouteForward&, int64_t begin, int64_t end);
  void (*backward)(const RouteBackward&, int64_t begin, int64_t end);
  void (*combine)(const CombineArgs&, int64_t begin, int64_t end);
};
const RouterTable& router_table(IsaTag<Isa::kPlain>);
const RouterTable& router_table(IsaTag<Isa::kAvx2>);
const RouterTable& router_table(IsaTag<Isa::kAvx512>);
const RouterTable& router_table(IsaTag<Isa::kAmx>);

}  // namespace weft::kernels
