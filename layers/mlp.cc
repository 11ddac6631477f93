#include "layers/mlp.h"

#include "kernels/activation.h"
#include "layers/convert.h"

namespace weft {

using kernels::Transpose;
using kernels::Write;

Mlp::Mlp(const Build& build, int64_t width)
    : gate_up_(build.store.declare(
          {.name = build.scope + "w_gate_up",
           .global = {2 * width, build.hidden},
           .splits = {{.dim = 0, .axis = Axis::kTensor, .blocks = {width, width}}}})),
      down_(build.store.declare({.name = build.scope + "w_down",
                                 .global = {build.hidden, width},
                                 .splits = {{.dim = 1, .axis = Axis::kTensor}},
                                 .init = output_init(build)})),
      width_(down_.shape[1]),
      compute_(build.compute) {}

void Mlp::refresh(Exec& exec) const {
  if (packed_version_ == gate_up_.version) return;
  packed_version_ = gate_up_.version;
  gate_up_forward_ = {exec, gate_up_.value, Transpose::kYes};
  gate_up_backward_ = {exec, gate_up_.value, Transpose::kNo};
  down_forward_ = {exec, down_.value, Transpose::kYes};
  down_backward_ = {exec, down_.value, Transpose::kNo};
}

Tensor Mlp::forward(Exec& exec, const Tensor& x, StepContext&, SavedStack& saved) const {
  return forward_scaled(exec, x, {}, saved);
}

Tensor Mlp::backward(Exec& exec, const Tensor& dy, const StepContext&, SavedStack& saved) const {
  return backward_scaled(exec, dy, saved).dx;
}

Tensor Mlp::forward_scaled(Exec& exec, const Tensor& x, const Tensor& scale,
                           SavedStack& saved) const {
  refresh(exec);
  const int64_t tokens = x.shape().rows();
  const Tensor gate_up = exec.empty({tokens, 2 * width_}, compute_);
  kernels::gemm(exec, x, gate_up_forward_, gate_up);
  const Tensor h = exec.empty({tokens, width_}, compute_);
  kernels::swiglu_forward(exec, gate_up, scale.defined() ? ConstView(scale) : ConstView{}, h);
  const Tensor y = exec.empty({tokens, down_.shape[0]});
  kernels::gemm(exec, h, down_forward_, y);
  saved.push(Saved{x, gate_up, scale});
  return y;
}

Mlp::Gradients Mlp::backward_scaled(Exec& exec, const Tensor& dy, SavedStack& saved) const {
  const auto [x, gate_up, scale] = saved.pop<Saved>();
  const int64_t tokens = x.shape().rows();
  const Tensor dyc = in_type(exec, dy, compute_);
  const Tensor dh = exec.empty({tokens, width_}, compute_);
  kernels::gemm(exec, dyc, down_backward_, dh);
  const Tensor h = exec.empty({tokens, width_}, compute_);
  const bool scaled = scale.defined();
  const Tensor d_scale = scaled ? exec.empty({tokens}) : Tensor{};
  // gate_up becomes its own gradient.
  kernels::swiglu_backward(exec, gate_up, scaled ? ConstView(scale) : ConstView{}, dh, gate_up,
                           scaled ? View(d_scale) : View{}, h);
  kernels::gemm(exec, dyc, h, down_.grad, {.a = Transpose::kYes, .write = Write::kAccumulate});
  kernels::gemm(exec, gate_up, x, gate_up_.grad, {.a = Transpose::kYes, .write = Write::kAccumulate});
  const Tensor dx = exec.empty(x.shape());
  kernels::gemm(exec, gate_up, gate_up_backward_, dx);
  return {dx, d_scale};
}

double Mlp::flops_per_token() const {
  return 6.0 * static_cast<double>(gate_up_.spec.global[1]) *
         static_cast<double>(down_.spec.global[1]);
}

}  // namespace weft
