#include "layers/basic/rms_norm.h"

#include "kernels/rows/elementwise.h"
#include "kernels/rows/norm.h"

namespace weft {

RmsNorm::RmsNorm(const Build& build, const std::string& name, const Scale& scale)
    : weight_(build.store.declare({.name = build.scope + name + ".weight",
                                   .global = {build.hidden},
                                   .partial_over = {Axis::kTensor},
                                   .init = Init::constant(1.0 - static_cast<double>(scale.offset)),
                                   .weight_decay = false,
                                   .f32 = true})),
      epsilon_(build.norm_epsilon),
      scale_(scale),
      compute_(build.compute) {}

Tensor RmsNorm::scale(Exec& exec) const {
  if (scale_.offset == 0.0f && scale_.factor == 1.0f) return weight_.value;
  const Tensor out = exec.scratch(weight_.shape);
  kernels::shift_scale(exec, weight_.value, scale_.offset, scale_.factor, out);
  return out;
}

Tensor RmsNorm::forward(Exec& exec, const Tensor& x, SavedStack& saved) const {
  const Tensor y = exec.empty(x.shape(), compute_);
  Saved frame{x, exec.empty({x.shape().rows()})};
  kernels::rms_norm_forward(exec, x, scale(exec), epsilon_, y, frame.inv_rms);
  saved.push(std::move(frame));
  return y;
}

Tensor RmsNorm::backward(Exec& exec, const Tensor& dy, const Tensor& residual,
                         SavedStack& saved) const {
  const auto [x, inv_rms] = saved.pop<Saved>();
  const Tensor dx = exec.empty(x.shape());
  const ConstView past = residual.defined() ? ConstView(residual) : ConstView{};
  if (scale_.factor == 1.0f) {
    kernels::rms_norm_backward(exec, dy, x, scale(exec), inv_rms, past, dx, weight_.grad);
    return dx;
  }
  const Tensor d_scale = exec.zeros(weight_.shape);
  kernels::rms_norm_backward(exec, dy, x, scale(exec), inv_rms, past, dx, d_scale);
  kernels::scale(exec, d_scale, scale_.factor, d_scale);
  kernels::add(exec, weight_.grad, d_scale, weight_.grad);
  return dx;
}

}  // namespace weft
