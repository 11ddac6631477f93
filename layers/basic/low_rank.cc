#include "layers/basic/low_rank.h"

#include "kernels/rows/elementwise.h"
#include "kernels/rows/reductions.h"
#include "layers/basic/cast.h"

namespace weft {
namespace {

constexpr double kGain = 0.1;

Linear::Part part(const std::string& name, int64_t rows, int64_t unit) {
  return {.name = name, .rows = rows, .unit = unit, .bare = true};
}

}  // namespace

Lora::Lora(const Build& build, const std::string& name, int64_t in, const Options& o)
    : compute_(build.compute),
      in_(in),
      rank_(o.rank),
      activation_(o.activation),
      // A deviation of zero, not zeros: tests put numbers in its place.
      down_(build, {part(name + "1", o.rank, 1)}, in,
            {.init = Init::normal(0.0), .weight_decay = false, .partial_over = {Axis::kTensor}}),
      up_(build, {part(name + "2", o.out, o.unit)}, o.rank,
          {.init = Init::orthogonal(kGain), .cut = Linear::Cut::kRows, .weight_decay = false}) {
  if (o.bias == Linear::Bias::kNo) return;
  bias_ = &build.declare({.name = build.scope + name + "0",
                          .global = {o.out},
                          .splits = {Split{.dim = 0, .axis = Axis::kTensor, .unit = o.unit}},
                          .init = o.bias_init,
                          .weight_decay = false,
                          .f32 = true});
}

Tensor Lora::forward(Exec& exec, const Tensor& x, DType y_type, SavedStack& saved) const {
  const Tensor low = down_.forward(exec, x, compute_, saved);
  Tensor active = low;
  if (activation_ != kernels::Activation::kIdentity) {
    active = exec.empty(low.shape(), compute_);
    kernels::activation_forward(exec, activation_, low, active);
  }
  const Tensor y = up_.forward(exec, active, y_type, saved);
  if (bias_ != nullptr) kernels::add_bias(exec, bias_->value, y);
  saved.push(Saved{low});
  return y;
}

Tensor Lora::backward(Exec& exec, const Tensor& dy, DType dx_type, SavedStack& saved) const {
  const auto [low] = saved.pop<Saved>();
  if (bias_ != nullptr) kernels::column_sum(exec, dy, bias_->grad);
  const Tensor d_low = up_.backward(exec, in_type(exec, dy, compute_), compute_, saved);
  if (activation_ != kernels::Activation::kIdentity) {
    kernels::activation_backward(exec, activation_, low, d_low, d_low);
  }
  return down_.backward(exec, d_low, dx_type, saved);
}

double Lora::flops_per_token() const {
  return 2.0 * static_cast<double>(rank_) * static_cast<double>(in_ + up_.out());
}

}  // namespace weft
