#include "layers/recurrence/momentum.h"

namespace weft {
namespace {

template <class States>
States momentum_states(const MomentumRule::Options& o, const State& state) {
  const size_t anchor = o.momentum ? 2 : 1;
  States out;
  if (!state.empty()) out.m = state[0];
  if (o.momentum && state.size() > 1) out.s = state[1];
  if (state.size() > anchor) out.anchor = state[anchor];
  return out;
}

}  // namespace

template class ScanRecurrence<MomentumRule>;

kernels::MomentumScan MomentumRule::scan(const Options& o) {
  Scan scan;
  scan.heads = o.heads;
  scan.key = o.dk, scan.value = o.dv;
  scan.mini_batch = o.mini_batch;
  scan.scale = o.scale;
  return scan;
}

std::vector<Shape> MomentumRule::one_state(const Options& o) {
  const size_t parts = 1 + (o.momentum ? 1 : 0) + (o.mini_batch > 1 ? 1 : 0);
  return std::vector<Shape>(parts, {o.heads, o.dk, o.dv});
}

kernels::MomentumStates MomentumRule::entering(const Options& o, const State& state) {
  return momentum_states<kernels::MomentumStates>(o, state);
}
kernels::MomentumStatesOut MomentumRule::leaving(const Options& o, const State& state) {
  return momentum_states<kernels::MomentumStatesOut>(o, state);
}

double MomentumRule::flops_per_token(const Options& o) {
  // Chunks as in the delta rule; a second state with momentum.
  constexpr double kChunk = 64;
  const auto dk = static_cast<double>(o.dk), dv = static_cast<double>(o.dv);
  return static_cast<double>(o.heads) *
         (kChunk * (2.0 * dk + 2.0 * dv) + (o.momentum ? 12.0 : 6.0) * dk * dv);
}

}  // namespace weft
