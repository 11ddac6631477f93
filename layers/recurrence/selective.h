#pragma once

#include "kernels/scan/elementwise_scan.h"
#include "layers/recurrence/affine.h"

namespace weft {

struct ChannelStates {
  int64_t channels = 0, states = 0;
};

// Per token: x [tokens, channels], dt f32 [tokens, channels], b, c [tokens, states]; a_log f32
// [channels, states], skip f32 [channels].
struct SelectiveInputs {
  ConstView x, dt, b, c;
  ConstView a_log, skip;
};
struct SelectiveGradients {  // overwritten, but for a_log and skip, which are added to
  View x, dt, b, c;
  View a_log, skip;
};
struct SelectiveKept {};

// The scan of Mamba without its weights, r = e^{a_log}:
//   M_t[n, c] = e^{-dt_c r_cn} M_{t-1}[n, c] + dt_c b_n x_c
//   y_c = sum_n c_n M_t[n, c] + skip_c x_c
// State: M [documents, states, channels].
class SelectiveRecurrence final
    : public AffineRecurrence<SelectiveInputs, SelectiveGradients, SelectiveKept> {
 public:
  explicit SelectiveRecurrence(const ChannelStates& sizes)
      : AffineRecurrence(Transition::kFactor, {{sizes.states, sizes.channels}}), sizes_(sizes) {}

  Tensor run(Exec& exec, const SelectiveInputs& in, const Sequence& sequence, const State& entering,
             State* leaving, SelectiveKept& keep) const override;
  void run_backward(Exec& exec, const SelectiveInputs& in, const Sequence& sequence,
                    const SelectiveKept& keep, const State& entering, const Cotangents& d,
                    const SelectiveGradients& gradients) const override;
  Summary summarize(Exec& exec, const SelectiveInputs& in, const Sequence& sequence) const override;

  std::string_view program() const override { return "selective_scan"; }
  double flops_per_token() const override {
    return 9.0 * static_cast<double>(sizes_.channels * sizes_.states);
  }

 protected:
  SelectiveGradients scratch_gradients(Exec& exec, const SelectiveInputs& in,
                                       std::vector<Tensor>& hold) const override;

 private:
  ChannelStates sizes_;
};

// Parameters instead of inputs per token: x [tokens, channels]; log_dt, skip f32 [channels]; a_log,
// b, c f32 [channels, states].
struct StaticInputs {
  ConstView x;
  ConstView log_dt, a_log, b, c, skip;
};
struct StaticGradients {  // x overwritten, the others added to
  View x;
  View log_dt, a_log, b, c, skip;
};

// The scan of S4 without its weights: as above with dt = e^{log_dt}. State: M [documents, states,
// channels].
class StaticRecurrence final
    : public AffineRecurrence<StaticInputs, StaticGradients, SelectiveKept> {
 public:
  explicit StaticRecurrence(const ChannelStates& sizes)
      : AffineRecurrence(Transition::kFactor, {{sizes.states, sizes.channels}}), sizes_(sizes) {}

  Tensor run(Exec& exec, const StaticInputs& in, const Sequence& sequence, const State& entering,
             State* leaving, SelectiveKept& keep) const override;
  void run_backward(Exec& exec, const StaticInputs& in, const Sequence& sequence,
                    const SelectiveKept& keep, const State& entering, const Cotangents& d,
                    const StaticGradients& gradients) const override;
  Summary summarize(Exec& exec, const StaticInputs& in, const Sequence& sequence) const override;

  std::string_view program() const override { return "static_scan"; }
  double flops_per_token() const override {
    return 4.0 * static_cast<double>(sizes_.channels * sizes_.states);
  }

 protected:
  StaticGradients scratch_gradients(Exec& exec, const StaticInputs& in,
                                    std::vector<Tensor>& hold) const override;

 private:
  ChannelStates sizes_;
};

}  // namespace weft
