#pragma once

#include "layers/recurrence/diagonal.h"

namespace weft {

// The recurrence whose state decays by one number per key channel and one per value channel:
//   M_t = diag(e^{g_t}) M_{t-1} diag(e^{h_t}) + k_t^T v_t,    o_t = scale * q_t M_t
// Inputs {q, k, v, log_decay, value_log_decay} as in kernels/scan/diagonal_scan.h. State: M
// [documents, heads, dk, dv].
struct TwoSidedRule : DiagonalRule {
  static constexpr const char* kProgram = "two_sided_scan";
  static constexpr Transition kTransition = Transition::kSides;
  static constexpr std::array<size_t, 5> kFields = {0, 1, 2, 3, 5};

  static State transition(Exec& exec, const Options& options, const Scan& in,
                          const Sequence& sequence);
  static double flops_per_token(const Options& options);
};

extern template class ScanRecurrence<TwoSidedRule>;
using TwoSidedRecurrence = ScanRecurrence<TwoSidedRule>;
using TwoSidedInputs = ScanInputs<TwoSidedRule>;
using TwoSidedGradients = ScanGradients<TwoSidedRule>;

}  // namespace weft
