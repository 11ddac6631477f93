#include "layers/moe/router.h"

#include <cmath>

#include "kernels/gemm.h"
#include "layers/convert.h"

namespace weft {
namespace {

using kernels::Transpose;
using kernels::Write;

// The router's own weights of experts that were chosen elsewhere.
Tensor weights_of(Exec& exec, const kernels::Router& rule, const Routing& routing) {
  const int64_t tokens = routing.index.shape()[0], active = routing.index.shape()[1];
  const int64_t experts = routing.probabilities.shape()[1];
  const bool renormalize = rule.renormalize || rule.mode == kernels::RouterMode::kTopkSoftmax;
  const Tensor weight = exec.empty({tokens, active});
  for (int64_t n = 0; n < tokens; ++n) {
    const float* p = routing.probabilities.data<float>() + n * experts;
    const int32_t* chosen = routing.index.data<int32_t>() + n * active;
    float sum = 0;
    for (int64_t k = 0; k < active; ++k) sum += p[chosen[k]];
    for (int64_t k = 0; k < active; ++k) {
      weight.data<float>()[n * active + k] = renormalize ? p[chosen[k]] / sum : p[chosen[k]];
    }
  }
  return weight;
}

}  // namespace

ExpertRouter::ExpertRouter(const Build& build, const RouterOptions& options)
    : options_(options),
      layer_(build.layer),
      weight_(build.store.declare({.name = build.scope + "router.weight",
                                   .global = {options.experts, build.hidden},
                                   .init = Init::normal(kInitDeviation),
                                   .f32 = true})) {}

Routing ExpertRouter::forward(Exec& exec, const Tensor& x, StepContext& context) const {
  if (context.replay) {
    Routing routing = std::move(*context.replay);
    context.replay.reset();
    return routing;
  }
  const int64_t tokens = x.shape().rows(), experts = options_.experts;
  const Tensor logits = exec.empty({tokens, experts});
  kernels::gemm(exec, in_type(exec, x, DType::kF32), weight_.value, logits, {.b = Transpose::kYes});
  Routing routing{.probabilities = exec.empty({tokens, experts}),
                  .index = exec.empty({tokens, options_.rule.active}, DType::kI32),
                  .weight = exec.empty({tokens, options_.rule.active}),
                  .log_sum_exp = exec.empty({tokens}),
                  .fraction = exec.empty({experts}),
                  .order = {}};
  const int64_t bad_token =
      kernels::route_forward(exec, options_.rule, logits, routing.probabilities, routing.index,
                             routing.weight, routing.log_sum_exp);
  if (context.fixed_choice) {
    routing.index = context.fixed_choice->index;
    routing.weight = context.fixed_choice->weight.defined()
                         ? context.fixed_choice->weight
                         : weights_of(exec, options_.rule, routing);
  }
  routing.order = kernels::order_by_expert(exec, routing.index, experts);
  const auto pairs = static_cast<double>(tokens * options_.rule.active);
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t count = routing.order.offsets[e + 1] - routing.order.offsets[e];
    routing.fraction.data<float>()[e] = static_cast<float>(static_cast<double>(count) / pairs);
  }
  report(exec, routing, bad_token, context);
  context.decided = routing;
  return routing;
}

void ExpertRouter::report(Exec& exec, const Routing& routing, int64_t bad_token,
                          StepContext& context) const {
  const int64_t experts = options_.experts;
  const Tensor mean = exec.empty({experts});
  kernels::column_mean(exec, routing.probabilities, mean);
  MoeReport report{.layer = layer_, .counts = std::vector<int64_t>(experts), .bad_token = bad_token};
  for (int64_t e = 0; e < experts; ++e) {
    const double fraction = routing.fraction.data<float>()[e], p = mean.data<float>()[e];
    report.aux += static_cast<double>(experts) * fraction * p;
    report.counts[e] = routing.order.offsets[e + 1] - routing.order.offsets[e];
  }
  const int64_t tokens = routing.log_sum_exp.elements();
  for (int64_t n = 0; n < tokens; ++n) {
    const double lse = routing.log_sum_exp.data<float>()[n];
    report.z += lse * lse / static_cast<double>(tokens);
  }
  context.reports.push_back(std::move(report));
}

void ExpertRouter::backward(Exec& exec, const Tensor& x, const Routing& routing,
                            const Tensor& d_weight, const StepContext& context,
                            const Tensor& dx) const {
  const auto tokens = static_cast<double>(x.shape().rows());
  const Tensor d_logits = exec.empty({x.shape().rows(), options_.experts});
  const double share = static_cast<double>(context.aux_scale) / tokens;
  const kernels::RouterBackward scales{
      .aux_scale = static_cast<float>(options_.aux_loss * static_cast<double>(options_.experts) * share),
      .z_scale = static_cast<float>(2.0 * options_.z_loss * share)};
  kernels::route_backward(exec, options_.rule, scales, routing.probabilities, routing.index,
                          routing.weight, routing.log_sum_exp, routing.fraction, d_weight, d_logits);
  kernels::gemm(exec, d_logits, in_type(exec, x, DType::kF32), weight_.grad,
                {.a = Transpose::kYes, .write = Write::kAccumulate});
  kernels::gemm(exec, d_logits, weight_.value, dx, {.write = Write::kAccumulate});
}

}  // namespace weft
