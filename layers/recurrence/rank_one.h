#pragma once

#include "kernels/scan/rank_one_scan.h"
#include "layers/recurrence/scan_recurrence.h"

namespace weft {

// A diagonal plus rank-one transition without its weights:                     (vectors are rows)
//   M_t = diag(e^{g_t}) M_{t-1} + b_t^T (a_t M_{t-1}) + k_t^T v_t,    o_t = scale * q_t M_t
// or, without alpha, the delta rule with a decay per channel:
//   M_t = (I - b_t k_t^T k_t) diag(e^{g_t}) M_{t-1} + b_t k_t^T v_t
// Inputs {q, k, v, log_decay, alpha, beta} as in kernels/scan/rank_one_scan.h. State: M [documents,
// heads, dk, dv].
struct RankOneRule : OneState {
  using Scan = kernels::RankOneScan;
  struct Options {
    int64_t heads = 0, dk = 0, dv = 0;
    float scale = 1.0f;
  };
  static constexpr const char* kProgram = "rank_one_scan";
  static constexpr Transition kTransition = Transition::kDense;
  static constexpr std::array<size_t, 6> kFields = {0, 1, 2, 3, 4, 5};
  static constexpr auto kKept = kernels::rank_one_scan_kept;
  static constexpr auto kForward = kernels::rank_one_scan_forward;
  static constexpr auto kBackward = kernels::rank_one_scan_backward;

  static Scan scan(const Options& options);
  static std::vector<Shape> one_state(const Options& o) { return {{o.heads, o.dk, o.dv}}; }
  static double flops_per_token(const Options& options);
};

extern template class ScanRecurrence<RankOneRule>;
using RankOneRecurrence = ScanRecurrence<RankOneRule>;
using RankOneInputs = ScanInputs<RankOneRule>;
using RankOneGradients = ScanGradients<RankOneRule>;

}  // namespace weft
