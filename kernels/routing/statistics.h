#pragma once

#include "core/memory/host_table.h"

// Statistics of a router's choices, and what balances experts without a gradient. Sums are carried
// in f64 in the order of tokens: the same bits for any number of threads.
namespace weft::kernels {

// f [runs, experts] = count (i64 [runs, experts]) over the sum of its row; 0 of a row of zeros.
// Where a load f32 [experts] is given and not zero everywhere, every row is the load.
void expert_fractions(Exec& exec, ConstView count, ConstView load, View f);

// numbers f64 [4]: this rank's part of the balance loss and of the z loss (both without their
// coefficients) and of the mean entropy in nats; the smallest margin, infinite without tokens.
struct RouterStatistics {
  ConstView probabilities;                 // [n, experts]
  ConstView fraction;                      // [runs, experts]
  ConstView log_sum_exp, entropy, margin;  // [n], as in kernels/routing/router.h
  int64_t first = 0, run = 0;              // token n is in run (first + n) / run
  int64_t tokens = 0;                      // over all ranks: what means are taken over
};
inline constexpr int64_t kRouterStatistics = 4;
void router_statistics(Exec& exec, const RouterStatistics& in, View numbers);

// index i32 [n, k] = n k + j modulo experts: every expert is chosen as often as any other.
void forced_choices(Exec& exec, int64_t experts, View index);

// After a step with these counts of pairs: bias f32 [experts] moves by `rate` towards the mean
// load, load f32 [experts] = shares of pairs. Either may be absent.
struct ExpertLoad {
  HostTable<int64_t> counts;
  double rate = 0;
  View bias, load;
};
void update_expert_load(Exec& exec, const ExpertLoad& in);

}  // namespace weft::kernels
