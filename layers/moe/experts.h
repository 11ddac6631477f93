#pragma once

#include "kernels/gemm.h"
#include "layers/build.h"
#include "layers/feed_forward.h"

namespace weft {

// The experts' SwiGLU layers as grouped products over the rows that chose them.
//   f_e(x) = w_down_e (silu(gate) * up),  (gate | up) = w_gate_up_e x,     y_n = sum_k w_nk f_{e(n,k)}(x_n)
//
// The router's weight is folded into the hidden row before the down projection: then its output is summed
// as it is and not kept, and the weight's gradient is a dot product of the hidden row and its gradient.
// Kept from forward: x (shared) and the pre-activations [pairs, 2 ffn]. Rows are gathered while they are
// packed for the product, so a gathered copy of x never exists.
class Experts {
 public:
  struct Saved {
    Tensor x, gate_up, sorted_weight;
  };
  struct Gradients {
    Tensor dx;        // [tokens, hidden] f32
    Tensor d_weight;  // [tokens, active] f32
  };

  Experts(const Build& build, int64_t experts, int64_t width);

  Tensor forward(Exec& exec, const Tensor& x, const Routing& routing, SavedStack& saved) const;
  Gradients backward(Exec& exec, const Tensor& dy, const Routing& routing, SavedStack& saved) const;

 private:
  void refresh(Exec& exec) const;

  Parameter& gate_up_;  // [experts, 2 ffn, hidden]: gate rows, then up rows
  Parameter& down_;     // [experts, hidden, ffn]
  DType compute_;
  mutable kernels::PackedMatrices gate_up_forward_, gate_up_backward_, down_forward_, down_backward_;
  mutable uint64_t packed_version_ = ~uint64_t{0};  // sum of the weights' versions; none yet
};

}  // namespace weft
