#pragma once

#include <string>

#include "kernels/gates/activation.h"
#include "layers/basic/linear.h"

namespace weft {

// A projection of low rank, y = up(f(down x)) + bias, with weights called <name>1 [rank, in],
// <name>2 [out, rank] and <name>0 [out], as RWKV-7 has them. Its published rules: `down` starts at
// zero, `up` orthogonal with gain 0.1, and none of them decays.
class Lora {
 public:
  struct Options {
    int64_t rank = 0, out = 0;
    int64_t unit = 1;  // outputs that stay together when the weight is cut: a head
    kernels::Activation activation = kernels::Activation::kIdentity;
    Linear::Bias bias = Linear::Bias::kYes;
    Init bias_init = Init::zeros();
  };
  Lora(const Build& build, const std::string& name, int64_t in, const Options& options);

  Tensor forward(Exec& exec, const Tensor& x, DType y_type, SavedStack& saved) const;
  // dy f32 -> dx in the asked type; adds into the weights' gradients.
  Tensor backward(Exec& exec, const Tensor& dy, DType dx_type, SavedStack& saved) const;

  double flops_per_token() const;

 private:
  struct Saved {
    Tensor low;  // before the activation
  };
  DType compute_;
  int64_t in_, rank_;
  kernels::Activation activation_;
  Linear down_, up_;
  Parameter* bias_ = nullptr;
};

}  // namespace weft
