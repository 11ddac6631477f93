#pragma once

#include "kernels/gates/ffn_activation.h"
#include "layers/basic/prepared_weight.h"
#include "layers/context/build.h"
#include "layers/context/feed_forward.h"

namespace weft {

// y = w_down a(w_in x), with the build's activation a (kernels/gates/ffn_activation.h).
//
// Only the pre-activation is kept; a(..) is computed again in backward. Hidden channels are cut
// over the tensor ranks.
class Mlp final : public FeedForward {
 public:
  Mlp(const Build& build, int64_t width);

  Tensor forward(Exec& exec, const Tensor& x, StepContext& context,
                 SavedStack& saved) const override;
  Tensor backward(Exec& exec, const Tensor& dy, const StepContext& context,
                  SavedStack& saved) const override;
  double flops_per_token() const override;

  // Forward for all tokens of the span at once, on this rank's channels alone (every result is a
  // part of a sum over the tensor ranks), with row n of y times scale[n] (f32 [tokens]; undefined:
  // 1). Backward gives its gradient too.
  struct Gradients {
    Tensor dx, d_scale;
  };
  Tensor forward_scaled(Exec& exec, const Tensor& x, const Tensor& scale, SavedStack& saved) const {
    return leave(exec, enter(exec, x, scale, saved));
  }
  // Its halves: up to the hidden channels, and from there.
  Tensor enter(Exec& exec, const Tensor& x, const Tensor& scale, SavedStack& saved) const;
  Tensor leave(Exec& exec, const Tensor& hidden) const;
  Gradients backward_scaled(Exec& exec, const Tensor& dy, SavedStack& saved) const;

 private:
  struct Saved {
    Tensor x, pre, scale;
  };

  kernels::FfnActivation activation_;
  Parameter& in_;  // w_gate_up [2 width, hidden]: gate rows, then up rows; or w_up [width, hidden]
  Parameter& down_;  // [hidden, width]
  int64_t width_;    // on this tensor rank
  DType compute_;
  Communicator* tensor_ranks_;
  PreparedWeight prepared_in_, prepared_down_;
};

}  // namespace weft
