#include "kernels/routing/cpu/router.h"

#include "kernels/cpu/tasks.h"
#include "kernels/routing/cpu/isa/router.h"

namespace weft::kernels::cpu {
namespace {

ShareOf share_of(const Router& router) {
  const bool of_chosen = router.mode == RouterMode::kTopkSoftmax || router.renormalize;
  return of_chosen ? ShareOf::kChosen : ShareOf::kAll;
}

RouteRule rule_of(const Router& router, int64_t experts) {
  const float scale = router.mode == RouterMode::kSigmoid ? router.scale : 1.0f;
  return {experts, router.active, router.groups, router.kept_groups, scale, share_of(router)};
}

}  // namespace

void route_forward(Exec& exec, const Router& router, const RouterInput& in, const Routed& out) {
  if (given(out.bad_token)) *host<int64_t>(out.bad_token) = -1;
  if (nothing_in(in.logits)) return;
  const int64_t rows = in.logits.rows(), experts = in.logits.width();
  const RouteForward args{rule_of(router, experts),
                          rows_of(in.logits),
                          host<float>(in.bias),
                          host<float>(out.probabilities),
                          host<int32_t>(out.index),
                          host<float>(out.weight),
                          host<float>(out.log_sum_exp),
                          host<float>(out.entropy),
                          host<float>(out.margin),
                          in.choice == Choice::kGiven,
                          router.mode == RouterMode::kSoftmax};
  const RouterTable& table = table_of<RouterTable>(exec.isa);
  const auto forward =
      router.mode == RouterMode::kSigmoid ? table.sigmoid_forward : table.softmax_forward;
  const RowBlocks blocks = row_blocks(rows, experts);
  const Tensor bad = exec.scratch({blocks.count()}, DType::kI64);
  int64_t* of_block = host<int64_t>(bad);
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    of_block[b] = forward(args, begin, end);
  });
  if (!given(out.bad_token)) return;
  int64_t& first = *host<int64_t>(out.bad_token);
  for (int64_t b = 0; b < blocks.count() && first < 0; ++b) first = of_block[b];
}

void route_backward(Exec& exec, const Router& router, ConstView logits, const Routed& routed,
                    const RouterGradient& gradient, View d_logits) {
  const int64_t rows = d_logits.rows(), experts = d_logits.width();
  const RouteBackward args{rule_of(router, experts),
                           rows_of(logits),
                           host<float>(routed.probabilities),
                           host<int32_t>(routed.index),
                           host<float>(routed.weight),
                           host<float>(routed.log_sum_exp),
                           host<float>(gradient.fraction),
                           gradient.first,
                           gradient.run,
                           host<float>(gradient.d_weight),
                           rows_of(d_logits),
                           gradient.aux_scale,
                           gradient.z_scale};
  const RouterTable& table = table_of<RouterTable>(exec.isa);
  const auto backward =
      router.mode == RouterMode::kSigmoid ? table.sigmoid_backward : table.softmax_backward;
  for_blocks(exec, row_blocks(rows, experts),
             [&](int64_t, int64_t begin, int64_t end) { backward(args, begin, end); });
}

}  // namespace weft::kernels::cpu
