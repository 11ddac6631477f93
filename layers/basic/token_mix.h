#pragma once

#include "layers/recurrence/history.h"

namespace weft {

struct PreviousInputs {
  ConstView x;
  View before;
};
struct PreviousGradients {
  View dx;  // f32, added to
};

// The token before each one, before_t = x_{t-1}, with zeros before a document. What RWKV's mixes of
// a token with the one before it read (kernels/sequence/token_lerp.h): a layer looks back once,
// however many mixes it makes, and sums up their gradients of `before`. The state is the last
// input.
//   forward:  previous.forward(exec, {x, before}, sequence, context.part("token_mix"), saved)
//             token_lerp_forward(exec, {x, before, mix}, y), for every mix
//   backward: token_lerp_backward(exec, {x, before, mix}, dy, {dx, d_before, d_mix}), for every mix
//             previous.backward(exec, {x, before}, sequence, d_before, part, {dx}, saved)
class PreviousToken final : public HistoryRecurrence<PreviousInputs, PreviousGradients> {
 public:
  explicit PreviousToken(int64_t width) : HistoryRecurrence(1, width) {}

  std::string_view program() const override { return "token_mix"; }
  Tensor run(Exec& exec, const PreviousInputs& in, const Sequence& sequence, const State& entering,
             State* leaving, NothingKept&) const override;
  void run_backward(Exec& exec, const PreviousInputs& in, const Sequence& sequence,
                    const NothingKept&, const State& entering, const Cotangents& d,
                    const PreviousGradients& gradients) const override;
  State state_gradient(Exec& exec, const PreviousInputs& in, const Sequence& sequence,
                       const NothingKept&, const State& entering,
                       ConstView d_before) const override;
};

}  // namespace weft
