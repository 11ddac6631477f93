#pragma once

#include "layers/feed_forward.h"
#include "layers/linear.h"

namespace weft {

// SwiGLU:  y = w_down (silu(gate) * up),  (gate | up) = w_gate_up x
//
// Only the pre-activation is kept; silu(gate) * up is computed again in backward.
class Mlp final : public FeedForward {
 public:
  Mlp(const Build& build, int64_t width);

  Tensor forward(Exec& exec, const Tensor& x, StepContext& context, SavedStack& saved) const override;
  Tensor backward(Exec& exec, const Tensor& dy, const StepContext& context,
                  SavedStack& saved) const override;
  double flops_per_token() const override;

  // The same with row n of y times scale[n] (f32 [tokens]; undefined: 1). Backward gives its gradient too.
  struct Gradients {
    Tensor dx, d_scale;
  };
  Tensor forward_scaled(Exec& exec, const Tensor& x, const Tensor& scale, SavedStack& saved) const;
  Gradients backward_scaled(Exec& exec, const Tensor& dy, SavedStack& saved) const;

 private:
  struct Saved {
    Tensor x, gate_up, scale;
  };
  void refresh(Exec& exec) const;

  Parameter& gate_up_;  // [2 width, hidden]: gate rows, then up rows
  Parameter& down_;     // [hidden, width]
  int64_t width_;       // on this tensor rank
  DType compute_;
  mutable kernels::PackedMatrices gate_up_forward_, gate_up_backward_, down_forward_, down_backward_;
  mutable uint64_t packed_version_ = 0;
};

}  // namespace weft
