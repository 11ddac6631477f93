#include "layers/rms_norm.h"

#include "kernels/norm.h"

namespace weft {

RmsNorm::RmsNorm(const Build& build, const std::string& name)
    : weight_(build.store.declare({.name = build.scope + name + ".weight",
                                   .global = {build.hidden},
                                   .partial_over = {Axis::kTensor},
                                   .init = Init::constant(1.0),
                                   .weight_decay = false,
                                   .f32 = true})),
      epsilon_(build.norm_epsilon),
      compute_(build.compute) {}

Tensor RmsNorm::forward(Exec& exec, const Tensor& x, SavedStack& saved) const {
  const Tensor y = exec.empty(x.shape(), compute_);
  Saved frame{x, exec.empty({x.shape().rows()})};
  kernels::rms_norm_forward(exec, x, weight_.value, epsilon_, y, frame.inv_rms);
  saved.push(std::move(frame));
  return y;
}

Tensor RmsNorm::backward(Exec& exec, const Tensor& dy, const Tensor& residual,
                         SavedStack& saved) const {
  const auto [x, inv_rms] = saved.pop<Saved>();
  const Tensor dx = exec.empty(x.shape());
  const ConstView past = residual.defined() ? ConstView(residual) : ConstView{};
  kernels::rms_norm_backward(exec, dy, x, weight_.value, inv_rms, past, dx, weight_.grad);
  return dx;
}

}  // namespace weft
