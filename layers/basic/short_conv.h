#pragma once

#include <string>

#include "kernels/sequence/conv1d.h"
#include "layers/context/build.h"
#include "layers/context/state.h"
#include "layers/recurrence/history.h"

namespace weft {

// A depthwise causal convolution over the last `taps` tokens of the document, then silu.
//   x, y: [tokens, channels], rows may be strided
//   weight: [channels, taps]   bias: [channels] or none
// The caller holds x until backward. Tensor ranks share channels as they share the projection that
// makes them. The state is the last taps - 1 inputs.
struct ConvInputs {
  ConstView x;
  View y;
};
struct ConvGradients {
  View dx;
};

class ShortConv {
 public:
  static constexpr int64_t kTaps = 4;

  struct Options {
    int64_t channels = 0;
    int64_t unit = 1;  // channels that stay together when the weight is cut: a head
    bool bias = false;
    std::vector<int64_t> blocks = {};  // runs of channels that are each cut on their own
    int replicas = 1;  // neighbouring ranks with the same channels: fewer kv heads than ranks
    kernels::Activation activation = kernels::Activation::kSilu;
  };
  // Declares `name`.weight (and .bias); `name` is also the part of the mixer's state.
  ShortConv(const Build& build, const std::string& name, const Options& options);

  void forward(Exec& exec, ConstView x, View y, const Sequence& sequence, MixerState* state,
               SavedStack& saved) const;
  // Adds into the weight's gradient.
  void backward(Exec& exec, ConstView x, ConstView dy, View dx, const Sequence& sequence,
                MixerState* d_state, SavedStack& saved) const;

  // The arithmetic.
  class Rule final : public HistoryRecurrence<ConvInputs, ConvGradients> {
   public:
    Rule(Parameter& weight, Parameter* bias, const Options& options)
        : HistoryRecurrence(kTaps - 1, options.channels),
          weight_(weight),
          bias_(bias),
          activation_(options.activation) {}
    std::string_view program() const override { return "short_conv"; }
    Tensor run(Exec& exec, const ConvInputs& in, const Sequence& sequence, const State& entering,
               State* leaving, NothingKept&) const override;
    void run_backward(Exec& exec, const ConvInputs& in, const Sequence& sequence,
                      const NothingKept&, const State& entering, const Cotangents& d,
                      const ConvGradients& gradients) const override;
    State state_gradient(Exec& exec, const ConvInputs& in, const Sequence& sequence,
                         const NothingKept&, const State& entering, ConstView dy) const override;

   private:
    Parameter& weight_;
    Parameter* bias_;
    kernels::Activation activation_;
  };
  const Rule& rule() const { return rule_; }

 private:
  std::string name_;
  Rule rule_;
};

}  // namespace weft
