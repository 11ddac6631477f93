#pragma once

#include "kernels/scan/momentum_scan.h"
#include "layers/recurrence/scan_recurrence.h"

namespace weft {

// Descent on |k M - v|^2 / 2 without its weights (kernels/scan/momentum_scan.h), gradients taken
// where the token's mini-batch began. Inputs {q, k, v, theta, alpha, eta}, the last two absent
// without momentum. State: M, with momentum S, and with mini-batches of several tokens M as the
// mini-batch found it, each [documents, heads, dk, dv]; a state that enters may leave out the last
// one when a mini-batch begins with it. The place in the mini-batch follows from the positions.
struct MomentumRule {
  using Scan = kernels::MomentumScan;
  struct Options {
    int64_t heads = 0, dk = 0, dv = 0;
    float scale = 1.0f;
    int64_t mini_batch = 1;
    bool momentum = false;
  };
  static constexpr const char* kProgram = "momentum_scan";
  static constexpr Transition kTransition = Transition::kDense;
  static constexpr std::array<size_t, 6> kFields = {0, 1, 2, 3, 4, 5};
  static constexpr auto kKept = kernels::momentum_scan_kept;
  static constexpr auto kForward = kernels::momentum_scan_forward;
  static constexpr auto kBackward = kernels::momentum_scan_backward;

  static Scan scan(const Options& options);
  static std::vector<Shape> one_state(const Options& options);
  static double flops_per_token(const Options& options);

  static kernels::MomentumStates entering(const Options& options, const State& state);
  static kernels::MomentumStatesOut leaving(const Options& options, const State& state);
  static void set_entering(Scan::Gradients& gradients, const kernels::MomentumStatesOut& d) {
    gradients.entering = d;
  }
};

extern template class ScanRecurrence<MomentumRule>;
using MomentumRecurrence = ScanRecurrence<MomentumRule>;
using MomentumInputs = ScanInputs<MomentumRule>;
using MomentumGradients = ScanGradients<MomentumRule>;

}  // namespace weft
