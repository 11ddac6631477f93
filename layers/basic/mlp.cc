#include "layers/basic/mlp.h"

#include "layers/basic/cast.h"
#include "layers/basic/token_shards.h"

namespace weft {
namespace {

ParameterSpec in_spec(const Build& build, int64_t width) {
  const bool gate = kernels::gated(build.activation);
  Split split{.dim = 0, .axis = Axis::kTensor};
  if (gate) split.blocks = {width, width};
  return {.name = build.scope + (gate ? "w_gate_up" : "w_up"),
          .global = {kernels::pre_width(build.activation, width), build.hidden},
          .splits = {split}};
}

}  // namespace

using kernels::Transpose;
using kernels::Write;

Mlp::Mlp(const Build& build, int64_t width)
    : activation_(build.activation),
      in_(build.store.declare(in_spec(build, width))),
      down_(build.store.declare({.name = build.scope + "w_down",
                                 .global = {build.hidden, width},
                                 .splits = {{.dim = 1, .axis = Axis::kTensor}},
                                 .init = output_init(build)})),
      width_(down_.shape[1]),
      compute_(build.compute),
      tensor_ranks_(build.tensor_ranks),
      prepared_in_(in_),
      prepared_down_(down_) {}

Tensor Mlp::forward(Exec& exec, const Tensor& x, StepContext& context, SavedStack& saved) const {
  const Tensor all = gather_tokens(exec, tensor_ranks_, x, context.span_tokens);
  return scatter_tokens(exec, tensor_ranks_, forward_scaled(exec, all, {}, saved));
}

Tensor Mlp::backward(Exec& exec, const Tensor& dy, const StepContext& context,
                     SavedStack& saved) const {
  const Tensor all =
      gather_tokens(exec, tensor_ranks_, in_type(exec, dy, compute_), context.span_tokens);
  return scatter_gradient(exec, tensor_ranks_, context.overlap, saved,
                          [&] { return backward_scaled(exec, all, saved).dx; });
}

Tensor Mlp::enter(Exec& exec, const Tensor& x, const Tensor& scale, SavedStack& saved) const {
  const int64_t tokens = x.shape().rows();
  const Tensor pre = exec.empty({tokens, in_.shape[0]}, compute_);
  kernels::gemm(exec, x, prepared_in_.forward(exec), pre);
  const Tensor h = exec.empty({tokens, width_}, compute_);
  kernels::ffn_activation_forward(exec, activation_, pre,
                                  scale.defined() ? ConstView(scale) : ConstView{}, h);
  saved.push(Saved{x, pre, scale});
  return h;
}

Tensor Mlp::leave(Exec& exec, const Tensor& hidden) const {
  const Tensor y = exec.empty({hidden.shape().rows(), down_.shape[0]});
  kernels::gemm(exec, hidden, prepared_down_.forward(exec), y);
  return y;
}

Mlp::Gradients Mlp::backward_scaled(Exec& exec, const Tensor& dy, SavedStack& saved) const {
  const auto [x, pre, scale] = saved.pop<Saved>();
  const int64_t tokens = x.shape().rows();
  const Tensor dyc = in_type(exec, dy, compute_);
  const Tensor dh = exec.empty({tokens, width_}, compute_);
  kernels::gemm(exec, dyc, prepared_down_.backward(exec), dh);
  const Tensor h = exec.empty({tokens, width_}, compute_);
  const bool scaled = scale.defined();
  const Tensor d_scale = scaled ? exec.empty({tokens}) : Tensor{};
  // pre becomes its own gradient.
  kernels::ffn_activation_backward(exec, activation_,
                                   {.pre = pre,
                                    .scale = scaled ? ConstView(scale) : ConstView{},
                                    .dh = dh,
                                    .d_pre = pre,
                                    .d_scale = scaled ? View(d_scale) : View{},
                                    .h = h});
  saved.weight_work(exec, [this, dyc, h, pre, x](Exec& later) {
    kernels::gemm(later, dyc, h, down_.grad, {.a = Transpose::kYes, .write = Write::kAccumulate});
    kernels::gemm(later, pre, x, in_.grad, {.a = Transpose::kYes, .write = Write::kAccumulate});
  });
  const Tensor dx = exec.empty(x.shape());
  kernels::gemm(exec, pre, prepared_in_.backward(exec), dx);
  return {dx, d_scale};
}

double Mlp::flops_per_token() const {
  return 2.0 * static_cast<double>(in_.spec.global[1]) *
         static_cast<double>(in_.spec.global[0] + down_.spec.global[1]);
}

}  // namespace weft
