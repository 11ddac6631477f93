#include "kernels/routing/router.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/host_access.h"
#include "kernels/cpu/tasks.h"
#include "kernels/routing/cpu/isa/router.h"
#include "kernels/rows/elementwise.h"

namespace weft::kernels {
namespace {

ShareOf share_of(const Router& router) {
  const bool of_chosen = router.mode == RouterMode::kTopkSoftmax || router.renormalize;
  return of_chosen ? ShareOf::kChosen : ShareOf::kAll;
}

RouteRule rule_of(const Router& router, int64_t experts) {
  WEFT_CHECK(router.active >= 1 && router.active <= experts, "router: {} of {} experts active",
             router.active, experts);
  const int64_t groups = router.groups, kept = router.kept_groups;
  WEFT_CHECK(groups >= 1 && groups <= kMostGroups && experts % groups == 0 && kept >= 1 &&
                 kept <= groups && kept * (experts / groups) >= router.active,
             "router: {} of {} experts from {} of {} groups", router.active, experts, kept, groups);
  const float scale = router.mode == RouterMode::kSigmoid ? router.scale : 1.0f;
  return {experts, router.active, groups, kept, scale, share_of(router)};
}

}  // namespace

int64_t route_forward(Exec& exec, const Router& router, const RouterInput& in, const Routed& out) {
  if (nothing_in(in.logits)) return -1;
  const int64_t rows = in.logits.rows(), experts = in.logits.width(), pairs = rows * router.active;
  WEFT_CHECK(in.logits.dtype == DType::kF32, "router: logits are {}", name_of(in.logits.dtype));
  const RouteForward args{
      rule_of(router, experts),
      rows_of(in.logits),
      given(in.bias) ? vector_of<float>(in.bias, experts, "router: bias") : nullptr,
      vector_of<float>(out.probabilities, rows * experts, "router: probabilities"),
      vector_of<int32_t>(out.index, pairs, "router: index"),
      vector_of<float>(out.weight, pairs, "router: weight"),
      vector_of<float>(out.log_sum_exp, rows, "router: log_sum_exp"),
      given(out.entropy) ? vector_of<float>(out.entropy, rows, "router: entropy") : nullptr,
      given(out.margin) ? vector_of<float>(out.margin, rows, "router: margin") : nullptr,
      in.choice == Choice::kGiven,
      router.mode == RouterMode::kSoftmax};
  const RouterTable& table = table_of<RouterTable>(exec.isa);
  const auto forward =
      router.mode == RouterMode::kSigmoid ? table.sigmoid_forward : table.softmax_forward;
  const RowBlocks blocks = row_blocks(rows, experts);
  std::vector<int64_t> bad(static_cast<size_t>(blocks.count()));
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    bad[static_cast<size_t>(b)] = forward(args, begin, end);
  });
  const auto first = std::find_if(bad.begin(), bad.end(), [](int64_t r) { return r >= 0; });
  return first == bad.end() ? -1 : *first;
}

void route_backward(Exec& exec, const Router& router, ConstView logits, const Routed& routed,
                    const RouterGradient& gradient, View d_logits) {
  if (nothing_in(d_logits)) return;
  const int64_t rows = d_logits.rows(), experts = d_logits.width(), pairs = rows * router.active;
  WEFT_CHECK(d_logits.dtype == DType::kF32, "router: d_logits are {}", name_of(d_logits.dtype));
  const bool balance = gradient.aux_scale != 0.0f, sigmoid = router.mode == RouterMode::kSigmoid;
  WEFT_CHECK(given(gradient.fraction) || !balance, "router: aux_scale {} without fractions",
             gradient.aux_scale);
  const int64_t runs = balance ? gradient.fraction.rows() : 1;
  const int64_t run = gradient.run > 0 ? gradient.run : std::max<int64_t>(1, rows / runs);
  WEFT_CHECK(gradient.first + rows <= runs * run || !balance,
             "router: fractions of {} runs of {} for tokens {} to {}", runs, run, gradient.first,
             gradient.first + rows);
  if (sigmoid) check_matrix(logits, rows, experts, "router: logits");
  const RouteBackward args{
      rule_of(router, experts),
      rows_of(logits),
      vector_of<float>(ConstView(routed.probabilities), rows * experts, "router: probabilities"),
      vector_of<int32_t>(ConstView(routed.index), pairs, "router: index"),
      vector_of<float>(ConstView(routed.weight), pairs, "router: weight"),
      vector_of<float>(ConstView(routed.log_sum_exp), rows, "router: log_sum_exp"),
      balance ? vector_of<float>(gradient.fraction, runs * experts, "router: fraction") : nullptr,
      gradient.first,
      run,
      vector_of<float>(gradient.d_weight, pairs, "router: d_weight"),
      rows_of(d_logits),
      gradient.aux_scale,
      gradient.z_scale};
  const RouterTable& table = table_of<RouterTable>(exec.isa);
  const auto backward = sigmoid ? table.sigmoid_backward : table.softmax_backward;
  for_blocks(exec, row_blocks(rows, experts),
             [&](int64_t, int64_t begin, int64_t end) { backward(args, begin, end); });
}

// Counting sort. Blocks of tokens count on their own; with the counts of the blocks before it,
// every block knows where its pairs go.
ExpertOrder order_by_expert(Exec& exec, ConstView index, int64_t experts) {
  ExpertOrder order;
  order.offsets.assign(static_cast<size_t>(experts) + 1, 0);
  const int64_t tokens = nothing_in(index) ? 0 : index.rows();
  const int64_t active = nothing_in(index) ? 0 : index.width(), pairs = tokens * active;
  order.row = exec.empty({tokens, active}, DType::kI32);
  if (pairs == 0) {
    order.token = exec.empty({0}, DType::kI32);
    return order;
  }
  const int32_t* expert = vector_of<int32_t>(index, pairs, "order_by_expert: index");

  const RowBlocks blocks = row_blocks(pairs, 4);
  std::vector<int64_t> next(static_cast<size_t>(blocks.count() * experts));
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    int64_t* count = next.data() + b * experts;
    for (int64_t i = begin; i < end; ++i) {
      WEFT_CHECK(expert[i] < experts, "order_by_expert: expert {} of {}", expert[i], experts);
      if (expert[i] >= 0) ++count[expert[i]];
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
  order.token = exec.empty({at}, DType::kI32);
  int32_t* token = host<int32_t>(order.token);
  int32_t* row = host<int32_t>(order.row);
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    int64_t* free = next.data() + b * experts;
    for (int64_t i = begin; i < end; ++i) {
      if (expert[i] < 0) {
        row[i] = -1;
        continue;
      }
      const int64_t to = free[expert[i]]++;
      token[to] = static_cast<int32_t>(i / active);
      row[i] = static_cast<int32_t>(to);
    }
  });
  return order;
}

// Each expert marks where its rows go; then every pair follows its row.
ExpertOrder limited(Exec& exec, const ExpertOrder& order, ConstView weight, int64_t capacity,
                    Keep keep) {
  const auto experts = static_cast<int64_t>(order.offsets.size()) - 1;
  const int64_t all = order.token.elements(), pairs = order.row.elements();
  WEFT_CHECK(all == pairs && capacity >= 0, "limited: capacity {}, {} of {} pairs have rows",
             capacity, all, pairs);
  ExpertOrder out{{0}, {}, exec.empty(order.row.shape(), DType::kI32)};
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t count = order.offsets[e + 1] - order.offsets[e];
    out.offsets.push_back(out.offsets.back() + std::min(count, capacity));
  }
  out.token = exec.empty({out.offsets.back()}, DType::kI32);
  if (pairs == 0) return out;
  const Tensor sorted = exec.scratch({keep == Keep::kHeaviest ? all : 0});
  if (keep == Keep::kHeaviest) permute_pairs(exec, order, weight, sorted);
  const float* weight_of = host<float>(sorted);
  std::vector<int32_t> moved(static_cast<size_t>(all), -1);
  const int32_t* token = host<int32_t>(order.token);
  int32_t* new_token = host<int32_t>(out.token);
  exec.threads.run(experts, [&](int64_t e) {
    const int64_t begin = order.offsets[e], count = order.offsets[e + 1] - begin;
    const int64_t stay = std::min(count, capacity);
    std::vector<int64_t> rows(static_cast<size_t>(count));
    std::iota(rows.begin(), rows.end(), begin);
    if (keep == Keep::kHeaviest && stay < count) {
      std::nth_element(rows.begin(), rows.begin() + stay, rows.end(), [&](int64_t a, int64_t b) {
        return weight_of[a] != weight_of[b] ? weight_of[a] > weight_of[b] : a < b;
      });
      std::sort(rows.begin(), rows.begin() + stay);
    }
    for (int64_t i = 0; i < stay; ++i) {
      const int64_t from = rows[static_cast<size_t>(i)], to = out.offsets[e] + i;
      moved[static_cast<size_t>(from)] = static_cast<int32_t>(to);
      new_token[to] = token[from];
    }
  });
  const int32_t* row = host<int32_t>(order.row);
  int32_t* new_row = host<int32_t>(out.row);
  for_blocks(exec, row_blocks(pairs, 1), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) new_row[i] = moved[static_cast<size_t>(row[i])];
  });
  return out;
}

void permute_pairs(Exec& exec, const ExpertOrder& order, ConstView values, View sorted) {
  const int64_t pairs = order.row.elements();
  if (pairs == 0) return;
  const int32_t* row = host<int32_t>(order.row);
  const float* from = vector_of<float>(values, pairs, "permute_pairs: values");
  float* to = vector_of<float>(sorted, order.token.elements(), "permute_pairs: sorted");
  for_blocks(exec, row_blocks(pairs, 1), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (row[i] >= 0) to[row[i]] = from[i];
    }
  });
}

void unpermute_pairs(Exec& exec, const ExpertOrder& order, ConstView sorted, View values) {
  const int64_t pairs = order.row.elements();
  if (pairs == 0) return;
  const int32_t* row = host<int32_t>(order.row);
  const float* from = vector_of<float>(sorted, order.token.elements(), "unpermute_pairs: sorted");
  float* to = vector_of<float>(values, pairs, "unpermute_pairs: values");
  for_blocks(exec, row_blocks(pairs, 1), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = row[i] >= 0 ? from[row[i]] : 0.0f;
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
  const int64_t sorted = order.token.elements();
  if (sorted > 0) check_matrix(rows, sorted, width, "combine_rows: rows");
  const CombineArgs args{host<int32_t>(order.row),     rows_of(rows), rows_of(y), active, width,
                         write == Combine::kAccumulate};
  const RouterTable& table = table_of<RouterTable>(exec.isa);
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
