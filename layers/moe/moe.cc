#include "layers/moe/moe.h"

#include "kernels/rows/elementwise.h"
#include "layers/basic/cast.h"

namespace weft {

Moe::Moe(const Build& build, const MoeOptions& options)
    : options_(options),
      hidden_(build.hidden),
      compute_type_(build.compute),
      expert_ranks_(build.store.here()[Axis::kExpert].size),
      width_ranks_(build.store.here()[Axis::kExpertTensor].size),
      router_(build, options.router),
      experts_(build, options.router.experts, options.width) {
  if (options.shared_width > 0) {
    shared_.emplace(build, options.shared_width, options.shared_gate);
  }
}

Tensor Moe::forward(Exec& exec, const Tensor& x, StepContext& context, SavedStack& saved) const {
  Routing routing = router_.forward(exec, x, context);
  Tensor y;
  if (expert_ranks_ * width_ranks_ > 1) {
    y = forward_there(exec, x, routing, context, saved);
  } else {
    y = experts_.forward(exec, x, routing, saved);
    if (shared_) {
      const Tensor hidden = shared_->enter(exec, x, context, saved);
      kernels::add(exec, y, shared_->leave(exec, hidden), y);
    }
  }
  saved.push(Saved{x, std::move(routing)});
  return y;
}

Tensor Moe::backward(Exec& exec, const Tensor& dy, const StepContext& context,
                     SavedStack& saved) const {
  const auto [x, routing] = saved.pop<Saved>();
  Tensor d_shared;
  Experts::Gradients gradients;
  if (expert_ranks_ * width_ranks_ > 1) {
    gradients = backward_there(exec, dy, routing, context, d_shared, saved);
  } else {
    if (shared_) d_shared = shared_->backward(exec, dy, context, saved);
    gradients = experts_.backward(exec, dy, routing, saved);
  }
  const Tensor& dx = gradients.dx;
  router_.backward(exec, x, routing, gradients.d_weight, context, dx);
  if (shared_) kernels::add(exec, dx, d_shared, dx);
  return dx;
}

Communicator& Moe::expert_ranks(const StepContext& context) const {
  WEFT_CHECK(context.expert_ranks != nullptr,
             "the experts live on {} ranks, but this pass was given none of the others",
             expert_ranks_ * width_ranks_);
  return *context.expert_ranks;
}

// Planned in the first forward pass and kept with the routing for a second one.
const ExpertExchange& Moe::exchange_of(Exec& exec, Routing& routing, StepContext& context) const {
  if (!routing.exchange) {
    const ExpertPlaces places{options_.router.experts, expert_ranks_, width_ranks_, context.travel};
    routing.exchange = std::make_shared<const ExpertExchange>(plan_exchange(
        exec, expert_ranks(context), places, routing.index, routing.weight, routing.order));
    if (context.decided) context.decided->exchange = routing.exchange;
  }
  return *routing.exchange;
}

Tensor Moe::forward_there(Exec& exec, const Tensor& x, Routing& routing, StepContext& context,
                          SavedStack& saved) const {
  Communicator& ranks = expert_ranks(context);
  const ExpertExchange& exchange = exchange_of(exec, routing, context);
  PendingTensor there = start_dispatch(exec, ranks, exchange, x, context.overlap);
  SavedStack kept = saved.inner();  // of the shared expert, whose backward is the first
  Tensor hidden;
  if (shared_) hidden = shared_->enter(exec, x, context, kept);
  const Tensor rows = experts_.forward(exec, there.wait(), exchange, saved, compute_type_);
  saved.append(std::move(kept));
  PendingTensor back = start_return(exec, ranks, exchange, rows, context.overlap);
  Tensor shared;
  if (shared_) shared = shared_->leave(exec, hidden);
  const Tensor y = exec.empty({x.shape().rows(), hidden_});
  combine_returned(exec, exchange, back.wait(), y);
  if (shared_) kernels::add(exec, y, shared, y);
  return y;
}

Experts::Gradients Moe::backward_there(Exec& exec, const Tensor& dy, const Routing& routing,
                                       const StepContext& context, Tensor& d_shared,
                                       SavedStack& saved) const {
  Communicator& ranks = expert_ranks(context);
  const ExpertExchange& exchange = *routing.exchange;
  const Overlap overlap = context.overlap;
  PendingTensor d_there =
      start_dispatch(exec, ranks, exchange, in_type(exec, dy, compute_type_), overlap);
  if (shared_) d_shared = shared_->backward(exec, dy, context, saved);
  if (overlap == Overlap::kOn) saved.hold();
  const Experts::Gradients there =
      experts_.backward(exec, d_there.wait(), exchange, saved, compute_type_);
  // Few bytes first: they would wait for all rows before them.
  PendingTensor weights = start_return_weights(exec, ranks, exchange, there.d_weight, overlap);
  PendingTensor back = start_return(exec, ranks, exchange, there.dx, overlap);
  if (overlap == Overlap::kOn) saved.run_held(exec);
  const Tensor d_weight = combine_weights(exec, exchange, weights.wait());
  const Tensor dx = exec.empty({dy.shape().rows(), hidden_});
  combine_returned(exec, exchange, back.wait(), dx);
  return {dx, d_weight};
}

double Moe::flops_per_token() const {
  const auto d = static_cast<double>(hidden_);
  const auto& rule = options_.router;
  return 2.0 * d * static_cast<double>(rule.experts) +
         6.0 * d * static_cast<double>(rule.rule.active * options_.width + options_.shared_width);
}

}  // namespace weft
