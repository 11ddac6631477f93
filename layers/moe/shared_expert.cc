#include "layers/moe/shared_expert.h"

#include "kernels/gates/activation.h"
#include "layers/basic/cast.h"
#include "layers/basic/token_shards.h"

namespace weft {

using kernels::Activation;
using kernels::Transpose;
using kernels::Write;

SharedExpert::SharedExpert(const Build& build, int64_t width, SharedGate gate)
    : mlp_(build.in("shared"), width),
      gate_(gate == SharedGate::kNone
                ? nullptr
                : &build.store.declare({.name = build.scope + "shared_gate.weight",
                                        .global = {1, build.hidden},
                                        .partial_over = {Axis::kTensor},
                                        .init = Init::normal(kInitDeviation),
                                        .f32 = true})),
      tensor_ranks_(build.tensor_ranks),
      compute_(build.compute) {}

Tensor SharedExpert::enter(Exec& exec, const Tensor& mine, const StepContext& context,
                           SavedStack& saved) const {
  const Tensor x = gather_tokens(exec, tensor_ranks_, mine, context.span_tokens);
  if (!gate_) return mlp_.enter(exec, x, {}, saved);
  const int64_t tokens = x.shape().rows();
  const Tensor logit = exec.empty({tokens, 1}), scale = exec.empty({tokens});
  kernels::gemm(exec, in_type(exec, x, DType::kF32), gate_->value, logit, {.b = Transpose::kYes});
  kernels::activation_forward(exec, Activation::kSigmoid, logit, scale);
  const Tensor hidden = mlp_.enter(exec, x, scale, saved);
  saved.push(Saved{x, logit});
  return hidden;
}

Tensor SharedExpert::leave(Exec& exec, const Tensor& hidden) const {
  return scatter_tokens(exec, tensor_ranks_, mlp_.leave(exec, hidden));
}

Tensor SharedExpert::backward(Exec& exec, const Tensor& dy, const StepContext& context,
                              SavedStack& saved) const {
  const Tensor all =
      gather_tokens(exec, tensor_ranks_, in_type(exec, dy, compute_), context.span_tokens);
  return scatter_gradient(exec, tensor_ranks_, context.overlap, saved,
                          [&] { return backward_all(exec, all, saved); });
}

Tensor SharedExpert::backward_all(Exec& exec, const Tensor& dy, SavedStack& saved) const {
  if (!gate_) return mlp_.backward_scaled(exec, dy, saved).dx;
  const auto [x, logit] = saved.pop<Saved>();
  const auto [dx, d_scale] = mlp_.backward_scaled(exec, dy, saved);
  const Tensor d_logit = exec.empty(logit.shape());
  kernels::activation_backward(exec, Activation::kSigmoid, logit, d_scale, d_logit);
  kernels::gemm(exec, d_logit, in_type(exec, x, DType::kF32), gate_->grad,
                {.a = Transpose::kYes, .write = Write::kAccumulate});
  kernels::gemm(exec, d_logit, gate_->value, dx, {.write = Write::kAccumulate});
  return dx;
}

}  // namespace weft
