#include "layers/basic/wide_norm.h"

#include <algorithm>

#include "kernels/rows/elementwise.h"
#include "kernels/rows/norm.h"
#include "kernels/rows/wide_norm.h"
#include "layers/basic/cast.h"
#include "parallel/comm/communicator.h"

namespace weft {

WideNorm::WideNorm(const Build& build, const std::string& name, int64_t channels, int64_t unit,
                   int64_t groups, float epsilon, const Variant& variant)
    : weight_(build.declare(
          {.name = build.scope + name,
           .global = {channels},
           .splits = {Split{
               .dim = 0, .axis = Axis::kTensor, .replicas = variant.replicas, .unit = unit}},
           .init = Init::constant(1.0 - variant.offset),
           .weight_decay = false,
           .f32 = true})),
      all_groups_(groups),
      width_(build.whole(channels, variant.replicas) / groups),
      epsilon_(epsilon),
      variant_(variant) {
  const int64_t size = build.store.here()[Axis::kTensor].size;
  groups_ = std::max<int64_t>(1, groups / size);
  ranks_ = groups < size ? build.tensor_ranks : nullptr;
}

void WideNorm::sum(Exec& exec, const Tensor& parts) const {
  const int64_t rows = parts.shape()[0];
  const Tensor all = exec.zeros({rows, all_groups_});
  const int64_t mine = ranks_->rank() * all_groups_ / ranks_->size();
  kernels::copy(exec, parts, all.view().columns(mine, 1));
  ranks_->all_reduce(exec, all, ReduceOp::kSum);
  kernels::copy(exec, all.view().columns(mine, 1), parts);
  // Forward, every replica has counted the same channels; backward, each takes its part of what all
  // parts of the gradient make together.
  if (variant_.replicas > 1) {
    kernels::scale(exec, parts, 1.0f / static_cast<float>(variant_.replicas), parts);
  }
}

Tensor WideNorm::scale(Exec& exec) const {
  if (variant_.offset == 0.0f) return weight_.value;
  const Tensor out = exec.scratch(weight_.shape);
  kernels::shift_scale(exec, weight_.value, variant_.offset, 1.0f, out);
  return out;
}

Tensor WideNorm::forward(Exec& exec, const Tensor& x, const Tensor& y) const {
  const Tensor inv_rms = exec.empty({x.shape().rows(), groups_});
  if (ranks_ == nullptr && all_groups_ == 1) {
    kernels::rms_norm_forward(exec, x, scale(exec), epsilon_, y,
                              inv_rms.reshaped({x.shape().rows()}));
    return inv_rms;
  }
  if (ranks_ == nullptr) {
    kernels::head_norm_forward(exec, {.heads = groups_, .epsilon = epsilon_}, x, {}, scale(exec), y,
                               inv_rms);
    return inv_rms;
  }
  const Tensor wide = in_type(exec, x, DType::kF32), out = exec.empty(x.shape());
  kernels::wide_norm_squares(exec, wide, groups_, inv_rms);
  sum(exec, inv_rms);
  kernels::wide_norm_inverse(exec, inv_rms, width_, epsilon_, inv_rms);
  kernels::wide_norm_scale(exec, wide, inv_rms, scale(exec), out);
  kernels::copy(exec, out, y);
  return inv_rms;
}

void WideNorm::backward(Exec& exec, const Tensor& dy, const Tensor& x, const Tensor& inv_rms,
                        const Tensor& dx) const {
  if (ranks_ == nullptr && all_groups_ == 1) {
    kernels::rms_norm_backward(exec, dy, x, scale(exec), inv_rms.reshaped({x.shape().rows()}), {},
                               dx, weight_.grad);
    return;
  }
  if (ranks_ == nullptr) {
    kernels::head_norm_backward(exec, {.heads = groups_, .epsilon = epsilon_}, dy, x, {},
                                scale(exec), inv_rms, dx, {}, weight_.grad);
    return;
  }
  const Tensor wide = in_type(exec, x, DType::kF32), d_wide = in_type(exec, dy, DType::kF32);
  const Tensor mean = exec.empty(inv_rms.shape()), out = exec.empty(x.shape());
  kernels::wide_norm_products(exec, d_wide, wide, inv_rms, scale(exec), weight_.grad, mean);
  sum(exec, mean);
  kernels::scale(exec, mean, 1.0f / static_cast<float>(width_), mean);
  kernels::wide_norm_backward(exec, {d_wide, wide, inv_rms, scale(exec), mean, out});
  kernels::copy(exec, out, dx);
}

}  // namespace weft
