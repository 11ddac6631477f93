#pragma once

#include "core/memory/exec.h"
#include "layers/context/feed_forward.h"

// Routings for benchmarks: functions of the shape alone, equal in every run and program.
namespace weft {

struct RoutingShape {
  int64_t tokens, experts, active;
};

// Token n goes to experts n * active, n * active + 1, ... modulo experts: every expert gets the
// same number of rows (to within one), from tokens all over the batch.
Routing balanced_routing(Exec& exec, const RoutingShape& shape);

// A router of Zipf-like popularity: token n takes the `active` largest of
//   logit[n, e] = -skew * log(1 + rank of e) + Gumbel noise[n, e]
// which draws experts without replacement with chances proportional to (1 + rank)^-skew. Ranks are
// a fixed shuffle of the experts. With 64 experts, 8 active and skew 0.4 the fullest expert
// gets 2.5 times the mean, as routers of trained fine-grained models do in their less balanced
// layers.
inline constexpr double kRealisticSkew = 0.4;
Routing skewed_routing(Exec& exec, const RoutingShape& shape, double skew = kRealisticSkew);

double max_over_mean(const Routing& routing);  // rows of the fullest expert over the mean

}  // namespace weft
