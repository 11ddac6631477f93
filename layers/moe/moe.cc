#include "layers/moe/moe.h"

#include "kernels/elementwise.h"

namespace weft {

Moe::Moe(const Build& build, const MoeOptions& options)
    : options_(options),
      hidden_(build.hidden),
      router_(build, options.router),
      experts_(build, options.router.experts, options.width) {
  if (options.shared_width > 0) {
    shared_.emplace(build, options.shared_width, options.shared_gate);
  }
}

Tensor Moe::forward(Exec& exec, const Tensor& x, StepContext& context, SavedStack& saved) const {
  Routing routing = router_.forward(exec, x, context);
  const Tensor y = experts_.forward(exec, x, routing, saved);
  if (shared_) kernels::add(exec, y, shared_->forward(exec, x, context.span_tokens, saved), y);
  saved.push(Saved{x, std::move(routing)});
  return y;
}

Tensor Moe::backward(Exec& exec, const Tensor& dy, const StepContext& context,
                     SavedStack& saved) const {
  const auto [x, routing] = saved.pop<Saved>();
  Tensor d_shared;
  if (shared_) d_shared = shared_->backward(exec, dy, context.span_tokens, saved);
  const auto [dx, d_weight] = experts_.backward(exec, dy, routing, saved);
  router_.backward(exec, x, routing, d_weight, context, dx);
  if (shared_) kernels::add(exec, dx, d_shared, dx);
  return dx;
}

double Moe::flops_per_token() const {
  const auto d = static_cast<double>(hidden_);
  const auto& rule = options_.router;
  return 2.0 * d * static_cast<double>(rule.experts) +
         6.0 * d * static_cast<double>(rule.rule.active * options_.width + options_.shared_width);
}

}  // namespace weft
