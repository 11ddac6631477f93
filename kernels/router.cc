#include "kernels/router.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/router.h"
#include "kernels/elementwise.h"
#include "kernels/launch.h"

namespace weft::kernels {
namespace {

const RouterTable& table_of(Isa isa) {
  return by_isa(isa, [](auto tag) -> const RouterTable& { return router_table(tag); });
}

ShareOf share_of(const Router& router) {
  const bool of_chosen = router.mode == RouterMode::kTopkSoftmax || router.renormalize;
  return of_chosen ? ShareOf::kChosen : ShareOf::kAll;
}

void check(const Router& router, int64_t experts) {
  WEFT_CHECK(router.active >= 1 && router.active <= experts, "router: {} of {} experts active",
             router.active, experts);
}

}  // namespace

int64_t route_forward(Exec& exec, const Router& router, ConstView logits, View probabilities,
                      View index, View weight, View log_sum_exp) {
  if (nothing_in(logits)) return -1;
  const int64_t rows = logits.rows(), experts = logits.width(), pairs = rows * router.active;
  check(router, experts);
  WEFT_CHECK(logits.dtype == DType::kF32, "router: logits are {}", name_of(logits.dtype));
  const RouteForward args{rows_of(logits),
                          vector_of<float>(probabilities, rows * experts, "router: probabilities"),
                          vector_of<int32_t>(index, pairs, "router: index"),
                          vector_of<float>(weight, pairs, "router: weight"),
                          vector_of<float>(log_sum_exp, rows, "router: log_sum_exp"),
                          experts,
                          router.active,
                          share_of(router)};
  const RouterTable& table = table_of(exec.isa);
  const RowBlocks blocks = row_blocks(rows, experts);
  std::vector<int64_t> bad(static_cast<size_t>(blocks.count()));
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    bad[static_cast<size_t>(b)] = table.forward(args, begin, end);
  });
  const auto first = std::find_if(bad.begin(), bad.end(), [](int64_t r) { return r >= 0; });
  return first == bad.end() ? -1 : *first;
}

void route_backward(Exec& exec, const Router& router, const RouterBackward& scales,
                    ConstView probabilities, ConstView index, ConstView weight,
                    ConstView log_sum_exp, ConstView fraction, ConstView d_weight, View d_logits) {
  if (nothing_in(d_logits)) return;
  const int64_t rows = d_logits.rows(), experts = d_logits.width(), pairs = rows * router.active;
  check(router, experts);
  WEFT_CHECK(d_logits.dtype == DType::kF32, "router: d_logits are {}", name_of(d_logits.dtype));
  WEFT_CHECK(given(fraction) || scales.aux_scale == 0.0f, "router: aux_scale {} without fractions",
             scales.aux_scale);
  const RouteBackward args{
      vector_of<float>(probabilities, rows * experts, "router: probabilities"),
      vector_of<int32_t>(index, pairs, "router: index"),
      vector_of<float>(weight, pairs, "router: weight"),
      vector_of<float>(log_sum_exp, rows, "router: log_sum_exp"),
      scales.aux_scale == 0.0f ? nullptr : vector_of<float>(fraction, experts, "router: fraction"),
      vector_of<float>(d_weight, pairs, "router: d_weight"),
      rows_of(d_logits),
      experts,
      router.active,
      share_of(router),
      scales.aux_scale,
      scales.z_scale};
  const RouterTable& table = table_of(exec.isa);
  for_blocks(exec, row_blocks(rows, experts),
             [&](int64_t, int64_t begin, int64_t end) { table.backward(args, begin, end); });
}

// Counting sort. Blocks of tokens count on their own; with the counts of the blocks before it,
// every block knows where its pairs go.
ExpertOrder order_by_expert(Exec& exec, ConstView index, int64_t experts) {
  ExpertOrder order;
  order.offsets.assign(static_cast<size_t>(experts) + 1, 0);
  const int64_t tokens = nothing_in(index) ? 0 : index.rows();
  const int64_t active = nothing_in(index) ? 0 : index.width(), pairs = tokens * active;
  order.token = exec.empty({pairs}, DType::kI32);
  order.row = exec.empty({tokens, active}, DType::kI32);
  if (pairs == 0) return order;
  const int32_t* expert = vector_of<int32_t>(index, pairs, "order_by_expert: index");

  const RowBlocks blocks = row_blocks(pairs, 4);
  std::vector<int64_t> next(static_cast<size_t>(blocks.count() * experts));
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    int64_t* count = next.data() + b * experts;
    for (int64_t i = begin; i < end; ++i) {
      WEFT_CHECK(expert[i] >= 0 && expert[i] < experts, "order_by_expert: expert {} of {}",
                 expert[i], experts);
      ++count[expert[i]];
    }
  });
  int64_t at = 0;
  for (int64_t e = 0; e < experts; ++e) {
    order.offsets[static_cast<size_t>(e)] = at;
    for (int64_t b = 0; b < blocks.count(); ++b) {
      at += std::exchange(next[static_cast<size_t>(b * experts + e)], at);
    }
  }
  order.offsets.back() = at;
  int32_t* token = order.token.data<int32_t>();
  int32_t* row = order.row.data<int32_t>();
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    int64_t* free = next.data() + b * experts;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t to = free[expert[i]]++;
      token[to] = static_cast<int32_t>(i / active);
      row[i] = static_cast<int32_t>(to);
    }
  });
  return order;
}

void permute_pairs(Exec& exec, const ExpertOrder& order, ConstView values, View sorted) {
  const int64_t pairs = order.row.elements();
  if (pairs == 0) return;
  const int32_t* row = order.row.data<int32_t>();
  const float* from = vector_of<float>(values, pairs, "permute_pairs: values");
  float* to = vector_of<float>(sorted, pairs, "permute_pairs: sorted");
  for_blocks(exec, row_blocks(pairs, 1), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[row[i]] = from[i];
  });
}

void unpermute_pairs(Exec& exec, const ExpertOrder& order, ConstView sorted, View values) {
  const int64_t pairs = order.row.elements();
  if (pairs == 0) return;
  const int32_t* row = order.row.data<int32_t>();
  const float* from = vector_of<float>(sorted, pairs, "unpermute_pairs: sorted");
  float* to = vector_of<float>(values, pairs, "unpermute_pairs: values");
  for_blocks(exec, row_blocks(pairs, 1), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = from[row[i]];
  });
}

void combine_rows(Exec& exec, const ExpertOrder& order, ConstView rows, View y, Combine write) {
  if (nothing_in(y)) return;
  const int64_t tokens = y.rows(), width = y.width();
  const int64_t active = order.row.shape().back();
  check_real(y, "combine_rows: y");
  WEFT_CHECK(order.row.shape().rows() == tokens,
             "combine_rows: {} rows for the choices of {} tokens", tokens,
             order.row.shape().rows());
  if (active > 0) check_matrix(rows, tokens * active, width, "combine_rows: rows");
  const CombineArgs args{order.row.data<int32_t>(),    rows_of(rows), rows_of(y), active, width,
                         write == Combine::kAccumulate};
  const RouterTable& table = table_of(exec.isa);
  for_blocks(exec, row_blocks(tokens, width),
             [&](int64_t, int64_t begin, int64_t end) { table.combine(args, begin, end); });
}

void column_mean(Exec& exec, ConstView p, View mean) {
  fill(exec, mean, 0.0f);
  if (nothing_in(p)) return;
  column_sum(exec, p, mean);
  scale(exec, mean, 1.0f / static_cast<float>(p.rows()), mean);
}

}  // namespace weft::kernels
