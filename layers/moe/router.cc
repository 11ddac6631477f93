#include "layers/moe/router.h"

#include <algorithm>
#include <cmath>

#include "kernels/matrix/gemm.h"
#include "kernels/routing/statistics.h"
#include "layers/basic/cast.h"
#include "layers/basic/token_statistics.h"
#include "layers/moe/capacity.h"

namespace weft {
namespace {

using kernels::RouterMode;
using kernels::Transpose;
using kernels::Write;

Parameter& declare_buffer(const Build& build, const char* name, int64_t experts) {
  return build.store.declare({.name = build.scope + name,
                              .global = {experts},
                              .init = Init::zeros(),
                              .weight_decay = false,
                              .f32 = true,
                              .buffer = true});
}

std::vector<int64_t> counts_of(const kernels::ExpertOrder& order) {
  std::vector<int64_t> counts(order.offsets.size() - 1);
  for (size_t e = 0; e < counts.size(); ++e) counts[e] = order.offsets[e + 1] - order.offsets[e];
  return counts;
}

}  // namespace

int64_t capacity_of(const RouterOptions& o, int64_t tokens) {
  return static_cast<int64_t>(
      std::ceil(o.capacity * static_cast<double>(tokens) * static_cast<double>(o.rule.active) /
                static_cast<double>(o.experts)));
}

ExpertRouter::ExpertRouter(const Build& build, const RouterOptions& options)
    : options_(options),
      layer_(build.layer),
      weight_(build.store.declare({.name = build.scope + "router.weight",
                                   .global = {options.experts, build.hidden},
                                   .partial_over = {Axis::kTensor},
                                   .init = Init::normal(kInitDeviation),
                                   .f32 = true})),
      bias_(options.rule.mode == RouterMode::kSigmoid
                ? &declare_buffer(build, "router.bias", options.experts)
                : nullptr),
      load_(options.scope == AuxScope::kGlobalBatch
                ? &declare_buffer(build, "router.load", options.experts)
                : nullptr) {}

Routing ExpertRouter::forward(Exec& exec, const Tensor& x, StepContext& context) const {
  if (context.replay) {
    Routing routing = std::move(*context.replay);
    context.replay.reset();
    return routing;
  }
  const int64_t tokens = x.shape().rows(), experts = options_.experts;
  const Tensor logits = exec.empty({tokens, experts});
  const RoutingNotes notes = RoutingNotes::of(exec, tokens);
  kernels::gemm(exec, in_type(exec, x, DType::kF32), weight_.value, logits, {.b = Transpose::kYes});
  Routing routing;
  decide(exec, logits, context, routing, notes);
  routing.order = kernels::order_by_expert(exec, routing.index, experts);
  routing.tokens = sum_over_tokens(exec, context.token_ranks, tokens);
  routing.fraction = fractions(exec, routing, context);
  MoeReport moe = report(exec, routing, notes, runs_of(context, tokens));
  moe.bad_token = download<int64_t>(exec, notes.bad_token).front();
  if (options_.capacity > 0) {
    const Capacity capacity{capacity_of(options_, routing.tokens), options_.keep};
    routing.order = within_capacity(exec, capacity, routing, experts, context);
    moe.dropped = tokens * options_.rule.active - routing.order.offsets.back();
  }
  context.reports.push_back(std::move(moe));
  if (context.made) context.made->insert_or_assign(layer_, routing.index);
  context.decided = routing;
  return routing;
}

void ExpertRouter::decide(Exec& exec, const Tensor& logits, const StepContext& context,
                          Routing& routing, const RoutingNotes& notes) const {
  const int64_t tokens = logits.shape()[0], active = options_.rule.active;
  routing.probabilities = exec.empty(logits.shape());
  routing.weight = exec.empty({tokens, active});
  routing.log_sum_exp = exec.empty({tokens});
  if (options_.rule.mode == RouterMode::kSigmoid) routing.logits = logits;

  kernels::RouterInput in{.logits = logits,
                          .bias = bias_ ? ConstView(bias_->value) : ConstView{},
                          .choice = kernels::Choice::kGiven};
  if (const auto given = context.given.find(layer_); given != context.given.end()) {
    routing.index = given->second;
    WEFT_CHECK((routing.index.shape() == Shape{tokens, active}),
               "layer {}: {} chosen for {} tokens", layer_, routing.index.shape(), tokens);
  } else if (options_.balance == Balance::kForced) {
    routing.index = exec.empty({tokens, active}, DType::kI32);
    kernels::forced_choices(exec, options_.experts, routing.index);
  } else {
    routing.index = exec.empty({tokens, active}, DType::kI32);
    in.choice = kernels::Choice::kMade;
  }
  kernels::route_forward(exec, options_.rule, in, notes.with(routing));
  if (context.fixed_choice) {
    routing.index = context.fixed_choice->index;
    routing.weight = context.fixed_choice->weight;
  }
}

TokenRuns ExpertRouter::runs_of(const StepContext& context, int64_t tokens) const {
  if (options_.scope != AuxScope::kSequence || context.row_tokens == 0) {
    return {.count = 1, .first = 0, .length = tokens};
  }
  const int64_t span = std::max(context.span_tokens, tokens), row = context.row_tokens;
  WEFT_CHECK(span % row == 0, "{} tokens are not whole sequences of {}", span, row);
  return {.count = span / row, .first = context.first_token, .length = row};
}

// Shares of the pairs of each run, over all ranks that hold tokens of it; or those of the step
// before.
Tensor ExpertRouter::fractions(Exec& exec, const Routing& routing,
                               const StepContext& context) const {
  const int64_t tokens = routing.index.shape()[0], experts = options_.experts;
  const TokenRuns runs = runs_of(context, tokens);
  const Tensor counts = exec.host({runs.count, experts}, DType::kI64);
  for (int64_t r = 0; r < runs.count; ++r) {
    const IndexRange run = runs.of(r, tokens);
    kernels::count_pairs(exec, routing.index.view().row_range(run.begin, run.size()),
                         counts.row(r));
  }
  if (context.token_ranks) context.token_ranks->all_reduce(exec, counts, ReduceOp::kSum);
  const Tensor f = exec.empty({runs.count, experts});
  kernels::expert_fractions(exec, counts, load_ ? ConstView(load_->value) : ConstView{}, f);
  return f;
}

MoeReport ExpertRouter::report(Exec& exec, const Routing& routing, const RoutingNotes& notes,
                               const TokenRuns& runs) const {
  const Tensor numbers = exec.scratch({kernels::kRouterStatistics}, DType::kF64);
  kernels::router_statistics(exec,
                             {.probabilities = routing.probabilities,
                              .fraction = routing.fraction,
                              .log_sum_exp = routing.log_sum_exp,
                              .entropy = notes.entropy,
                              .margin = notes.margin,
                              .first = runs.first,
                              .run = runs.length,
                              .tokens = routing.tokens},
                             numbers);
  const std::vector<double> read = download<double>(exec, numbers);
  return {.layer = layer_,
          .aux = read[0],
          .z = read[1],
          .router_entropy = read[2],
          .margin = read[3],
          .counts = counts_of(routing.order)};
}

void ExpertRouter::backward(Exec& exec, const Tensor& x, const Routing& routing,
                            const Tensor& d_weight, const StepContext& context,
                            const Tensor& dx) const {
  const auto tokens = static_cast<double>(routing.tokens);
  const Tensor d_logits = exec.empty({x.shape().rows(), options_.experts});
  const double share = static_cast<double>(context.aux_scale) / tokens;
  const TokenRuns runs = runs_of(context, x.shape().rows());
  const kernels::RouterGradient gradient{
      .d_weight = d_weight,
      .fraction = routing.fraction,
      .aux_scale =
          static_cast<float>(options_.aux_loss * static_cast<double>(options_.experts) * share),
      .z_scale = static_cast<float>(2.0 * options_.z_loss * share),
      .first = runs.first,
      .run = runs.length};
  const ConstView logits = routing.logits.defined() ? ConstView(routing.logits) : ConstView{};
  kernels::route_backward(exec, options_.rule, logits, routing.views(), gradient, d_logits);
  kernels::gemm(exec, d_logits, in_type(exec, x, DType::kF32), weight_.grad,
                {.a = Transpose::kYes, .write = Write::kAccumulate});
  kernels::gemm(exec, d_logits, weight_.value, dx, {.write = Write::kAccumulate});
}

void ExpertRouter::finish_step(Exec& exec, const std::vector<int64_t>& counts) {
  if (!bias_ && !load_) return;
  kernels::update_expert_load(exec, {.counts = HostTable<int64_t>(counts),
                                     .rate = options_.bias_rate,
                                     .bias = bias_ ? View(bias_->master) : View{},
                                     .load = load_ ? View(load_->master) : View{}});
}

}  // namespace weft
