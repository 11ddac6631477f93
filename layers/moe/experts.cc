#include "layers/moe/experts.h"

#include "kernels/activation.h"
#include "layers/convert.h"

namespace weft {
namespace {

using kernels::Transpose;

std::span<const int32_t> token_of_row(const Routing& routing) {
  return {routing.order.token.data<int32_t>(),
          static_cast<size_t>(routing.order.token.elements())};
}

}  // namespace

Experts::Experts(const Build& build, int64_t experts, int64_t width)
    : gate_up_(build.store.declare(
          {.name = build.scope + "experts.w_gate_up",
           .global = {experts, 2 * width, build.hidden},
           .splits = {{.dim = 0, .axis = Axis::kExpert},
                      {.dim = 1, .axis = Axis::kExpertTensor, .blocks = {width, width}}},
           .expert = true})),
      down_(build.store.declare({.name = build.scope + "experts.w_down",
                                 .global = {experts, build.hidden, width},
                                 .splits = {{.dim = 0, .axis = Axis::kExpert},
                                            {.dim = 2, .axis = Axis::kExpertTensor}},
                                 .init = output_init(build),
                                 .expert = true})),
      compute_(build.compute) {}

void Experts::refresh(Exec& exec) const {
  const uint64_t version = gate_up_.version + down_.version;
  if (packed_version_ == version) return;
  packed_version_ = version;
  gate_up_forward_ = {exec, gate_up_.value, Transpose::kYes};
  gate_up_backward_ = {exec, gate_up_.value, Transpose::kNo};
  down_forward_ = {exec, down_.value, Transpose::kYes};
  down_backward_ = {exec, down_.value, Transpose::kNo};
}

Tensor Experts::forward(Exec& exec, const Tensor& x, const Routing& routing,
                        SavedStack& saved) const {
  refresh(exec);
  const auto& offsets = routing.order.offsets;
  const int64_t pairs = offsets.back(), width = down_.shape[2], hidden = down_.shape[1];
  const Tensor sorted_weight = exec.empty({pairs});
  kernels::permute_pairs(exec, routing.order, routing.weight, sorted_weight);
  const Tensor gate_up = exec.empty({pairs, 2 * width}, compute_);
  kernels::grouped_gemm(exec, x, offsets, gate_up_forward_, gate_up, kernels::Write::kReplace,
                        token_of_row(routing));
  const Tensor h = exec.empty({pairs, width}, compute_);
  kernels::swiglu_forward(exec, gate_up, sorted_weight, h);
  const Tensor down = exec.empty({pairs, hidden}, compute_);
  kernels::grouped_gemm(exec, h, offsets, down_forward_, down);
  const Tensor y = exec.empty({x.shape().rows(), hidden});
  kernels::combine_rows(exec, routing.order, down, y);
  saved.push(Saved{x, gate_up, sorted_weight});
  return y;
}

Experts::Gradients Experts::backward(Exec& exec, const Tensor& dy, const Routing& routing,
                                     SavedStack& saved) const {
  const auto [x, gate_up, sorted_weight] = saved.pop<Saved>();
  const auto& offsets = routing.order.offsets;
  const auto rows = token_of_row(routing);
  const int64_t pairs = offsets.back(), width = down_.shape[2];
  const Tensor dyc = in_type(exec, dy, compute_);
  const Tensor dh = exec.empty({pairs, width}, compute_);
  kernels::grouped_gemm(exec, dyc, offsets, down_backward_, dh, kernels::Write::kReplace, rows);
  const Tensor h = exec.empty({pairs, width}, compute_);
  const Tensor d_sorted = exec.empty({pairs});
  // gate_up becomes its own gradient.
  kernels::swiglu_backward(exec, gate_up, sorted_weight, dh, gate_up, d_sorted, h);
  kernels::grouped_gemm_weights(exec, dyc, h, offsets, down_.grad, {.gather_a = rows});
  kernels::grouped_gemm_weights(exec, gate_up, x, offsets, gate_up_.grad, {.gather_b = rows});
  const Tensor d_rows = exec.empty({pairs, x.shape().back()}, compute_);
  kernels::grouped_gemm(exec, gate_up, offsets, gate_up_backward_, d_rows);
  Gradients gradients{exec.empty(x.shape()), exec.empty(routing.weight.shape())};
  kernels::combine_rows(exec, routing.order, d_rows, gradients.dx);
  kernels::unpermute_pairs(exec, routing.order, d_sorted, gradients.d_weight);
  return gradients;
}

}  // namespace weft
