#include "layers/moe/capacity.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/host_access.h"

namespace weft {
namespace {

// What the other ranks must know of a token: the sequence it is in, its experts, their weights. One
// row of words each; rows beyond a rank's tokens have no sequence.
constexpr int32_t kNoSequence = std::numeric_limits<int32_t>::max();

Tensor told_of(Exec& exec, const Routing& routing, const StepContext& context, int64_t rows) {
  const int64_t tokens = routing.index.shape()[0], active = routing.index.shape()[1];
  const int64_t words = 1 + 2 * active;
  const Tensor out = exec.empty({rows, words}, DType::kI32);
  std::fill_n(host<int32_t>(out), out.elements(), kNoSequence);
  for (int64_t n = 0; n < tokens; ++n) {
    int32_t* row = host<int32_t>(out) + n * words;
    const int64_t in_span = context.first_token + n;
    row[0] = context.row_tokens > 0 ? static_cast<int32_t>(in_span / context.row_tokens) : 0;
    for (int64_t k = 0; k < active; ++k) {
      row[1 + k] = host<int32_t>(routing.index)[n * active + k];
      row[1 + active + k] = std::bit_cast<int32_t>(host<float>(routing.weight)[n * active + k]);
    }
  }
  return out;
}

// Rows of `told` that are tokens, in the order of the micro-batch.
std::vector<int64_t> in_order(const Tensor& told, int64_t words) {
  const int32_t* from = host<int32_t>(told);
  std::vector<int64_t> rows;
  for (int64_t r = 0; r < told.elements() / words; ++r) {
    if (from[r * words] != kNoSequence) rows.push_back(r);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [&](int64_t a, int64_t b) { return from[a * words] < from[b * words]; });
  return rows;
}

struct PairsOfAll {
  Tensor index, weight;
};

PairsOfAll choices_of(Exec& exec, const Tensor& told, const std::vector<int64_t>& rows,
                      int64_t active) {
  const Shape shape{std::ssize(rows), active};
  PairsOfAll out{exec.empty(shape, DType::kI32), exec.empty(shape)};
  for (int64_t n = 0; n < std::ssize(rows); ++n) {
    const int32_t* row = host<int32_t>(told) + rows[static_cast<size_t>(n)] * (1 + 2 * active);
    std::copy_n(row + 1, active, host<int32_t>(out.index) + n * active);
    for (int64_t k = 0; k < active; ++k) {
      host<float>(out.weight)[n * active + k] = std::bit_cast<float>(row[1 + active + k]);
    }
  }
  return out;
}

}  // namespace

kernels::ExpertOrder within_capacity(Exec& exec, const Capacity& capacity, const Routing& routing,
                                     int64_t experts, const StepContext& context) {
  const int64_t active = routing.index.shape()[1], words = 1 + 2 * active;
  Communicator* ranks = context.token_ranks;
  if (ranks == nullptr) {
    return kernels::limit_to_capacity(exec, routing.order, routing.weight, capacity.pairs,
                                      capacity.keep);
  }
  const int64_t most = ranks->hosts().max(routing.index.shape()[0]);
  const Tensor all = exec.empty({ranks->size() * most, words}, DType::kI32);
  ranks->all_gather(exec, told_of(exec, routing, context, most), all);
  const std::vector<int64_t> rows = in_order(all, words);
  const PairsOfAll choices = choices_of(exec, all, rows, active);
  const kernels::ExpertOrder order =
      kernels::limit_to_capacity(exec, kernels::order_by_expert(exec, choices.index, experts),
                                 choices.weight, capacity.pairs, capacity.keep);

  // Back to this rank's tokens: those that were dropped are nobody's.
  const Tensor mine = exec.empty(routing.index.shape(), DType::kI32);
  const int64_t first = ranks->rank() * most;
  for (int64_t n = 0; n < std::ssize(rows); ++n) {
    const int64_t here = rows[static_cast<size_t>(n)] - first;
    if (here < 0 || here >= mine.shape()[0]) continue;
    for (int64_t k = 0; k < active; ++k) {
      const bool stays = host<int32_t>(order.row)[n * active + k] >= 0;
      host<int32_t>(mine)[here * active + k] =
          stays ? host<int32_t>(routing.index)[here * active + k] : -1;
    }
  }
  return kernels::order_by_expert(exec, mine, experts);
}

}  // namespace weft
