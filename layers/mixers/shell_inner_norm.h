#pragma once

#include <functional>

#include "kernels/rows/group_norm.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/norm_descent.h"

namespace weft {

// The core of TTT whose inner model is k + LayerNorm(k M + n): descent on it, and the read through
// the same norm, o = q + LayerNorm(q M + n). The norm's weight and bias and where M and n start
// are learned.
class InnerNorm {
 public:
  struct Options {
    int64_t heads = 0, width = 0;
    int64_t mini_batch = 16;
  };
  InnerNorm(const Build& build, const Options& options);

  struct Inputs {
    View q, k, v, eta;
  };
  struct Gradients {  // overwritten
    View q, k, v, eta;
  };
  // f32 [tokens, heads * width]. `meanwhile`: what may be done before the state is needed.
  Tensor forward(Exec& exec, const Inputs& in, const MixerContext& context,
                 const std::function<void()>& meanwhile, SavedStack& saved) const;
  // d_out f32
  void backward(Exec& exec, const Inputs& in, const Tensor& d_out, const MixerContext& context,
                const Gradients& gradients, SavedStack& saved) const;
  double flops_per_token() const { return recurrence_.flops_per_token(); }

 private:
  struct Saved {
    Tensor read;  // q M + n
    kernels::GroupNormStatistics statistics;
  };
  NormDescentInputs inputs(const Inputs& in) const {
    return {in.q, in.k, in.v, in.eta, weight_.value, bias_.value};
  }
  kernels::GroupNorm norm() const { return {.heads = options_.heads, .epsilon = 1e-6f}; }

  Options options_;
  Parameter &weight_, &bias_;      // [heads, width]
  Parameter &start_m_, &start_n_;  // [heads, width, width], [heads, width]
  NormDescentRecurrence recurrence_;
};

}  // namespace weft
