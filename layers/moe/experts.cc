#include "layers/moe/experts.h"

#include "layers/basic/cast.h"

namespace weft {
namespace {

using Pass = ExpertCompute::Pass;

ParameterSpec in_spec(const Build& build, int64_t experts, int64_t width) {
  const bool gate = kernels::gated(build.activation);
  Split within{.dim = 1, .axis = Axis::kExpertTensor};
  if (gate) within.blocks = {width, width};
  return {.name = build.scope + (gate ? "experts.w_gate_up" : "experts.w_up"),
          .global = {experts, kernels::pre_width(build.activation, width), build.hidden},
          .splits = {{.dim = 0, .axis = Axis::kExpert}, within},
          .expert = true};
}

ParameterSpec down_spec(const Build& build, int64_t experts, int64_t width) {
  return {.name = build.scope + "experts.w_down",
          .global = {experts, build.hidden, width},
          .splits = {{.dim = 0, .axis = Axis::kExpert}, {.dim = 2, .axis = Axis::kExpertTensor}},
          .init = output_init(build),
          .expert = true};
}

}  // namespace

std::unique_ptr<ExpertCompute> make_expert_compute(ExpertMode mode, const ExpertWeights& weights) {
  switch (mode) {
    case ExpertMode::kLoop: return make_loop_experts(weights);
    case ExpertMode::kBlockSparse: return make_block_sparse_experts(weights);
    default: return make_grouped_experts(weights);
  }
}

Experts::Experts(const Build& build, int64_t experts, int64_t width)
    : activation_(build.activation),
      in_(build.store.declare(in_spec(build, experts, width))),
      down_(build.store.declare(down_spec(build, experts, width))),
      compute_type_(build.compute),
      compute_(make_expert_compute(build.expert_mode, {in_, down_})) {}

Experts::Experts(const ExpertWeights& weights, kernels::FfnActivation activation,
                 DType compute_type, std::unique_ptr<ExpertCompute> compute)
    : activation_(activation),
      in_(weights.in),
      down_(weights.down),
      compute_type_(compute_type),
      compute_(std::move(compute)) {}

Tensor Experts::scale_of(Exec& exec, const ExpertRows& rows, const ExpertPairs& pairs) const {
  const Tensor per_pair = exec.empty({rows.pairs});
  kernels::permute_pairs(exec, pairs.order.row, pairs.weight, per_pair);
  return compute_->spread(exec, rows, per_pair);
}

Tensor Experts::forward(Exec& exec, const Tensor& x, const ExpertPairs& pairs, SavedStack& saved,
                        DType result) const {
  const ExpertRows rows = compute_->rows(pairs.order);
  const int64_t hidden = down_.shape[1], width = down_.shape[2];
  const Tensor pre = exec.empty({rows.hidden, in_.shape[1]}, compute_type_);
  compute_->enter(exec, rows, Pass::kForward, compute_->arrange(exec, rows, x), pre);
  const Tensor out = exec.empty({rows.pairs, hidden}, compute_type_);
  {
    const Tensor h = exec.empty({rows.hidden, width}, compute_type_);
    kernels::ffn_activation_forward(exec, activation_, pre, scale_of(exec, rows, pairs), h);
    compute_->leave(exec, rows, Pass::kForward, h, out);
  }
  const Tensor y = exec.empty({x.shape().rows(), hidden}, result);
  kernels::combine_rows(exec, pairs.order.row, out, y);
  saved.push(Saved{x, pre});
  return y;
}

Experts::Gradients Experts::backward(Exec& exec, const Tensor& dy, const ExpertPairs& pairs,
                                     SavedStack& saved, DType result) const {
  const auto [x, pre] = saved.pop<Saved>();
  const ExpertRows rows = compute_->rows(pairs.order);
  const int64_t width = down_.shape[2];
  Gradients gradients{exec.empty(x.shape(), result), exec.empty(pairs.weight.shape())};
  {
    const Tensor d_out = compute_->arrange(exec, rows, in_type(exec, dy, compute_type_));
    const Tensor h = exec.empty({rows.hidden, width}, compute_type_);
    const Tensor dh = exec.empty({rows.hidden, width}, compute_type_);
    compute_->enter(exec, rows, Pass::kBackward, d_out, dh);
    const Tensor d_scale = exec.empty({rows.hidden});
    // pre becomes its own gradient.
    kernels::ffn_activation_backward(exec, activation_,
                                     {.pre = pre,
                                      .scale = scale_of(exec, rows, pairs),
                                      .dh = dh,
                                      .d_pre = pre,
                                      .d_scale = d_scale,
                                      .h = h});
    saved.weight_work(exec, [this, order = pairs.order, d_out, h](Exec& later) {
      compute_->add_down_gradient(later, compute_->rows(order), d_out, h);
    });
    kernels::unpermute_pairs(exec, pairs.order.row, compute_->collect(exec, rows, d_scale),
                             gradients.d_weight);
  }
  saved.weight_work(exec, [this, order = pairs.order, pre, x](Exec& later) {
    const ExpertRows later_rows = compute_->rows(order);
    compute_->add_in_gradient(later, later_rows, pre, compute_->arrange(later, later_rows, x));
  });
  const Tensor d_rows = exec.empty({rows.pairs, x.shape().back()}, compute_type_);
  compute_->leave(exec, rows, Pass::kBackward, pre, d_rows);
  kernels::combine_rows(exec, pairs.order.row, d_rows, gradients.dx);
  return gradients;
}

double Experts::flops_per_pair() const {
  return 2.0 * static_cast<double>(down_.spec.global[1]) *
         static_cast<double>(in_.spec.global[1] + down_.spec.global[2]);
}

}  // namespace weft
