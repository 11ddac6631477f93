#pragma once

#include "kernels/scan/diagonal_scan.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/scan_recurrence.h"

namespace weft {

// The recurrence whose state decays by one number per key channel and token, without its weights:
//   M_t = diag(e^{g_t}) M_{t-1} + k_t^T v_t,    o_t = scale * q_t M_t           (vectors are rows)
// or, with a bonus u,  o_t = scale * (q_t M_{t-1} + (q_t * u * k_t) . 1 v_t).
// Inputs {q, k, v, log_decay, bonus} as in kernels/scan/diagonal_scan.h. State: M [documents,
// heads, dk, dv].
struct DiagonalRule : OneState {
  using Scan = kernels::DiagonalScan;
  struct Options {
    HeadOptions heads;
    float scale = 1.0f;
  };
  static constexpr const char* kProgram = "diagonal_scan";
  static constexpr Transition kTransition = Transition::kFactor;
  static constexpr std::array<size_t, 5> kFields = {0, 1, 2, 3, 4};
  static constexpr auto kKept = kernels::diagonal_scan_kept;
  static constexpr auto kForward = kernels::diagonal_scan_forward;
  static constexpr auto kBackward = kernels::diagonal_scan_backward;

  static Scan scan(const Options& options);
  static std::vector<Shape> one_state(const Options& options);
  static State transition(Exec& exec, const Options& options, const Scan& in,
                          const Sequence& sequence);
  static double flops_per_token(const Options& options);
};

extern template class ScanRecurrence<DiagonalRule>;
using DiagonalRecurrence = ScanRecurrence<DiagonalRule>;
using DiagonalInputs = ScanInputs<DiagonalRule>;
using DiagonalGradients = ScanGradients<DiagonalRule>;

}  // namespace weft
