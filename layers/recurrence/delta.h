#pragma once

#include "kernels/scan/delta_scan.h"
#include "layers/recurrence/scan_recurrence.h"

namespace weft {

// The (gated) delta rule without its weights:                                  (vectors are rows)
//   M_t = e^{g_t} (I - b_t k_t^T k_t) M_{t-1} + b_t k_t^T v_t,    o_t = scale * q_t M_t
// Inputs {q, k, v, beta, log_decay} as in kernels/scan/delta_scan.h. State: M [documents, heads,
// dk, dv].
struct DeltaRule : OneState {
  using Scan = kernels::DeltaScan;
  struct Options {
    int64_t heads = 0, qk_heads = 0;  // groups of heads share a query and a key
    int64_t dk = 0, dv = 0;
    float scale = 1.0f;
  };
  static constexpr const char* kProgram = "delta_scan";
  static constexpr Transition kTransition = Transition::kDense;
  static constexpr std::array<size_t, 5> kFields = {0, 1, 2, 3, 4};
  static constexpr auto kKept = kernels::delta_scan_kept;
  static constexpr auto kForward = kernels::delta_scan_forward;
  static constexpr auto kBackward = kernels::delta_scan_backward;

  static Scan scan(const Options& options);
  static std::vector<Shape> one_state(const Options& o) { return {{o.heads, o.dk, o.dv}}; }
  static double flops_per_token(const Options& options);
};

extern template class ScanRecurrence<DeltaRule>;
using DeltaRecurrence = ScanRecurrence<DeltaRule>;
using DeltaInputs = ScanInputs<DeltaRule>;
using DeltaGradients = ScanGradients<DeltaRule>;

}  // namespace weft
