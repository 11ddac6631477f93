#include "kernels/routing/router.h"

#include <algorithm>

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/routing/cpu/router.h"

namespace weft::kernels {
namespace {

void check_router(const Router& router, int64_t experts) {
  WEFT_CHECK(router.active >= 1 && router.active <= experts, "router: {} of {} experts active",
             router.active, experts);
  const int64_t groups = router.groups, kept = router.kept_groups;
  WEFT_CHECK(groups >= 1 && groups <= kMostGroups && experts % groups == 0 && kept >= 1 &&
                 kept <= groups && kept * (experts / groups) >= router.active,
             "router: {} of {} experts from {} of {} groups", router.active, experts, kept, groups);
}

// The gradient with what it leaves open: the tokens of a run, and no fractions where they have no
// weight.
RouterGradient resolved(RouterGradient gradient, int64_t rows, int64_t experts) {
  if (gradient.aux_scale == 0.0f) gradient.fraction = {};
  WEFT_CHECK(given(gradient.fraction) || gradient.aux_scale == 0.0f,
             "router: aux_scale {} without fractions", gradient.aux_scale);
  const int64_t runs = given(gradient.fraction) ? gradient.fraction.rows() : 1;
  if (gradient.run <= 0) gradient.run = std::max<int64_t>(1, rows / runs);
  if (given(gradient.fraction)) {
    check_numbers(gradient.fraction, runs * experts, "router: fraction");
    WEFT_CHECK(gradient.first + rows <= runs * gradient.run,
               "router: fractions of {} runs of {} for tokens {} to {}", runs, gradient.run,
               gradient.first, gradient.first + rows);
  }
  return gradient;
}

}  // namespace

void route_forward(Exec& exec, const Router& router, const RouterInput& in, const Routed& out) {
  if (given(out.bad_token)) check_vector<int64_t>(out.bad_token, 1, "router: bad_token");
  if (!nothing_in(in.logits)) {
    const int64_t rows = in.logits.rows(), experts = in.logits.width();
    const int64_t pairs = rows * router.active;
    check_router(router, experts);
    check_f32(in.logits, "router: logits");
    if (given(in.bias)) check_numbers(in.bias, experts, "router: bias");
    check_numbers(out.probabilities, rows * experts, "router: probabilities");
    check_vector<int32_t>(out.index, pairs, "router: index");
    check_numbers(out.weight, pairs, "router: weight");
    check_numbers(out.log_sum_exp, rows, "router: log_sum_exp");
    if (given(out.entropy)) check_numbers(out.entropy, rows, "router: entropy");
    if (given(out.margin)) check_numbers(out.margin, rows, "router: margin");
  }
  const bool made = in.choice == Choice::kMade;
  dispatch(exec,
           {.name = "route_forward",
            .flops = 6.0 * elements(in.logits) + 3.0 * elements(out.entropy),
            .read = bytes_of(in.logits, in.bias) + (made ? 0 : bytes_of(out.index)),
            .written = bytes_of(out.probabilities, out.weight, out.log_sum_exp, out.entropy,
                                out.margin, out.bad_token) +
                       (made ? bytes_of(out.index) : 0)},
           cpu::route_forward, router, in, out);
}

void route_backward(Exec& exec, const Router& router, ConstView logits, const Routed& routed,
                    const RouterGradient& gradient, View d_logits) {
  if (nothing_in(d_logits)) return;
  const int64_t rows = d_logits.rows(), experts = d_logits.width(), pairs = rows * router.active;
  check_router(router, experts);
  check_f32(d_logits, "router: d_logits");
  if (router.mode == RouterMode::kSigmoid) {
    check_f32_matrix(logits, rows, experts, "router: logits");
  }
  check_numbers(routed.probabilities, rows * experts, "router: probabilities");
  check_vector<int32_t>(routed.index, pairs, "router: index");
  check_numbers(routed.weight, pairs, "router: weight");
  check_numbers(routed.log_sum_exp, rows, "router: log_sum_exp");
  check_numbers(gradient.d_weight, pairs, "router: d_weight");
  const RouterGradient whole = resolved(gradient, rows, experts);
  dispatch(exec,
           {.name = "route_backward",
            .flops = (router.mode == RouterMode::kSigmoid ? 10.0 : 5.0) * elements(d_logits),
            .read = bytes_of(logits, routed.probabilities, routed.index, routed.weight,
                             routed.log_sum_exp, gradient.d_weight, whole.fraction),
            .written = bytes_of(d_logits)},
           cpu::route_backward, router, logits, routed, whole, d_logits);
}

}  // namespace weft::kernels
