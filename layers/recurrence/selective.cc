#include "layers/recurrence/selective.h"

#include "kernels/states/decay.h"
#include "layers/context/state.h"

namespace weft {
namespace {

kernels::SelectiveScan scan_of(const SelectiveInputs& in, const Sequence& sequence) {
  return {in.x, in.dt, in.b, in.c, in.a_log, in.skip, sequence.documents};
}
kernels::StaticScan scan_of(const StaticInputs& in, const Sequence& sequence) {
  return {in.x, in.log_dt, in.a_log, in.b, in.c, in.skip, sequence.documents};
}

// Room for a state that is wanted.
View make_state(Exec& exec, const ChannelStates& s, const Sequence& sequence, State* state) {
  if (state == nullptr) return {};
  *state = {exec.empty({sequence.count(), s.states, s.channels})};
  return state->at(0);
}

// Log decays, [states, channels], of a_log [channels, states]: per unit of time, or per token of
// e^{log_dt}.
Tensor log_decays(Exec& exec, const ChannelStates& s, ConstView a_log, ConstView log_dt) {
  const Tensor logs = exec.empty({s.states, s.channels});
  kernels::log_rates(exec, a_log, log_dt, logs);
  return logs;
}

}  // namespace

Tensor SelectiveRecurrence::run(Exec& exec, const SelectiveInputs& in, const Sequence& sequence,
                                const State& entering, State* leaving, SelectiveKept&) const {
  const Tensor out = exec.empty({sequence.tokens(), sizes_.channels}, in.x.dtype);
  kernels::selective_scan_forward(exec, scan_of(in, sequence), given(entering), out,
                                  make_state(exec, sizes_, sequence, leaving));
  return out;
}

void SelectiveRecurrence::run_backward(Exec& exec, const SelectiveInputs& in,
                                       const Sequence& sequence, const SelectiveKept&,
                                       const State& entering, const Cotangents& d,
                                       const SelectiveGradients& gradients) const {
  kernels::selective_scan_backward(
      exec, scan_of(in, sequence), given(entering), d.d_out, given(d.d_leaving),
      {gradients.x, gradients.dt, gradients.b, gradients.c, gradients.a_log, gradients.skip,
       make_state(exec, sizes_, sequence, d.d_entering)});
}

Summary SelectiveRecurrence::summarize(Exec& exec, const SelectiveInputs& in,
                                       const Sequence& sequence) const {
  const Tensor total = exec.empty({sequence.count(), sizes_.channels});
  kernels::document_sums(exec, {.width = sizes_.channels}, sequence.documents, in.dt, total);
  State update;
  const View to = make_state(exec, sizes_, sequence, &update);
  kernels::selective_scan_forward(exec, scan_of(in, sequence), {}, {}, to);
  return {{total}, update, {log_decays(exec, sizes_, in.a_log, {})}};
}

SelectiveGradients SelectiveRecurrence::scratch_gradients(Exec& exec, const SelectiveInputs& in,
                                                          std::vector<Tensor>& hold) const {
  return {scratch_like(exec, in.x, hold),     scratch_like(exec, in.dt, hold),
          scratch_like(exec, in.b, hold),     scratch_like(exec, in.c, hold),
          scratch_like(exec, in.a_log, hold), scratch_like(exec, in.skip, hold)};
}

Tensor StaticRecurrence::run(Exec& exec, const StaticInputs& in, const Sequence& sequence,
                             const State& entering, State* leaving, SelectiveKept&) const {
  const Tensor out = exec.empty({sequence.tokens(), sizes_.channels}, in.x.dtype);
  kernels::static_scan_forward(exec, scan_of(in, sequence), given(entering), out,
                               make_state(exec, sizes_, sequence, leaving));
  return out;
}

void StaticRecurrence::run_backward(Exec& exec, const StaticInputs& in, const Sequence& sequence,
                                    const SelectiveKept&, const State& entering,
                                    const Cotangents& d, const StaticGradients& gradients) const {
  kernels::static_scan_backward(
      exec, scan_of(in, sequence), given(entering), d.d_out, given(d.d_leaving),
      {gradients.x, gradients.log_dt, gradients.a_log, gradients.b, gradients.c, gradients.skip,
       make_state(exec, sizes_, sequence, d.d_entering)});
}

Summary StaticRecurrence::summarize(Exec& exec, const StaticInputs& in,
                                    const Sequence& sequence) const {
  const Tensor logs = log_decays(exec, sizes_, in.a_log, in.log_dt);
  State update;
  const View to = make_state(exec, sizes_, sequence, &update);
  kernels::static_scan_forward(exec, scan_of(in, sequence), {}, {}, to);
  return {{token_counts(exec, sequence)}, update, {logs}};
}

StaticGradients StaticRecurrence::scratch_gradients(Exec& exec, const StaticInputs& in,
                                                    std::vector<Tensor>& hold) const {
  return {scratch_like(exec, in.x, hold),     scratch_like(exec, in.log_dt, hold),
          scratch_like(exec, in.a_log, hold), scratch_like(exec, in.b, hold),
          scratch_like(exec, in.c, hold),     scratch_like(exec, in.skip, hold)};
}

}  // namespace weft
