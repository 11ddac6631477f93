#include "kernels/routing/cpu/expert_order.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/cpu/tasks.h"
#include "kernels/routing/cpu/isa/expert_order.h"

namespace weft::kernels::cpu {
namespace {

RowBlocks pair_blocks(ConstView index) { return row_blocks(index.shape.elements(), 4); }

// [blocks, experts] (i64): the pairs of each block with each expert.
Tensor counts_of_blocks(Exec& exec, ConstView index, int64_t experts) {
  const RowBlocks blocks = pair_blocks(index);
  const Tensor counts = exec.scratch({blocks.count(), experts}, DType::kI64);
  const int32_t* expert = host<int32_t>(index);
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    int64_t* count = host<int64_t>(counts) + b * experts;
    std::fill_n(count, experts, 0);
    for (int64_t i = begin; i < end; ++i) {
      WEFT_CHECK(expert[i] < experts, "order of pairs: expert {} of {}", expert[i], experts);
      if (expert[i] >= 0) ++count[expert[i]];
    }
  });
  return counts;
}

// The rows of an expert's [begin, end) that stay, in ascending order; `weight` may be absent.
std::vector<int64_t> staying_rows(int64_t begin, int64_t end, int64_t stay, const float* weight) {
  std::vector<int64_t> rows(static_cast<size_t>(end - begin));
  std::iota(rows.begin(), rows.end(), begin);
  if (weight != nullptr && stay < end - begin) {
    std::nth_element(rows.begin(), rows.begin() + stay, rows.end(), [&](int64_t a, int64_t b) {
      return weight[a] != weight[b] ? weight[a] > weight[b] : a < b;
    });
    std::sort(rows.begin(), rows.begin() + stay);
  }
  rows.resize(static_cast<size_t>(stay));
  return rows;
}

}  // namespace

void count_pairs(Exec& exec, ConstView index, View count) {
  const int64_t experts = count.shape.elements();
  int64_t* sum = host<int64_t>(count);
  std::fill_n(sum, experts, 0);
  if (nothing_in(index)) return;
  const Tensor counts = counts_of_blocks(exec, index, experts);
  for (int64_t b = 0; b < counts.shape()[0]; ++b) {
    const int64_t* block = host<int64_t>(counts) + b * experts;
    for (int64_t e = 0; e < experts; ++e) sum[e] += block[e];
  }
}

// Counting sort: with the counts of the blocks before it, every block knows where its pairs go.
void order_pairs(Exec& exec, ConstView index, const HostTable<int64_t>& offsets, View token,
                 View row) {
  const auto experts = static_cast<int64_t>(offsets.size()) - 1;
  const int64_t active = index.width();
  const RowBlocks blocks = pair_blocks(index);
  const Tensor counts = counts_of_blocks(exec, index, experts);
  int64_t* next = host<int64_t>(counts);
  for (int64_t e = 0; e < experts; ++e) {
    int64_t at = offsets[static_cast<size_t>(e)];
    for (int64_t b = 0; b < blocks.count(); ++b) at += std::exchange(next[b * experts + e], at);
    WEFT_CHECK(at == offsets[static_cast<size_t>(e) + 1],
               "order_pairs: expert {} has rows to {}, offsets say {}", e, at,
               offsets[static_cast<size_t>(e) + 1]);
  }
  const int32_t* expert = host<int32_t>(index);
  int32_t *tokens = host<int32_t>(token), *rows = host<int32_t>(row);
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    int64_t* free = next + b * experts;
    for (int64_t i = begin; i < end; ++i) {
      if (expert[i] < 0) {
        rows[i] = -1;
        continue;
      }
      const int64_t to = free[expert[i]]++;
      tokens[to] = static_cast<int32_t>(i / active);
      rows[i] = static_cast<int32_t>(to);
    }
  });
}

// Each expert marks where its rows go; then every pair follows its row.
void keep_pairs(Exec& exec, const KeepPairs& call) {
  const auto experts = static_cast<int64_t>(call.offsets.size()) - 1;
  const int64_t pairs = call.row.shape.elements();
  const Tensor sorted = exec.scratch({given(call.weight) ? pairs : 0});
  if (given(call.weight)) permute_pairs(exec, call.row, call.weight, sorted);
  const float* weight = given(call.weight) ? host<float>(sorted) : nullptr;
  const Tensor moves = exec.scratch({pairs}, DType::kI32);
  int32_t *moved = host<int32_t>(moves), *kept_token = host<int32_t>(call.kept_token);
  const int32_t* token = host<int32_t>(call.token);
  std::fill_n(moved, pairs, -1);
  exec.threads.run(experts, [&](int64_t expert) {
    const auto e = static_cast<size_t>(expert);
    int64_t to = call.kept_offsets[e];
    for (const int64_t from : staying_rows(call.offsets[e], call.offsets[e + 1],
                                           call.kept_offsets[e + 1] - to, weight)) {
      moved[from] = static_cast<int32_t>(to);
      kept_token[to++] = token[from];
    }
  });
  const int32_t* row = host<int32_t>(call.row);
  int32_t* kept_row = host<int32_t>(call.kept_row);
  for_blocks(exec, row_blocks(pairs, 1), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) kept_row[i] = moved[row[i]];
  });
}

void permute_pairs(Exec& exec, ConstView row, ConstView values, View sorted) {
  const int32_t* at = host<int32_t>(row);
  const float* from = host<float>(values);
  float* to = host<float>(sorted);
  for_blocks(exec, row_blocks(row.shape.elements(), 1), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (at[i] >= 0) to[at[i]] = from[i];
    }
  });
}

void unpermute_pairs(Exec& exec, ConstView row, ConstView sorted, View values) {
  const int32_t* at = host<int32_t>(row);
  const float* from = host<float>(sorted);
  float* to = host<float>(values);
  for_blocks(exec, row_blocks(row.shape.elements(), 1), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = at[i] >= 0 ? from[at[i]] : 0.0f;
  });
}

void combine_rows(Exec& exec, ConstView row, ConstView rows, View y, Write write) {
  const CombineArgs args{host<int32_t>(row), rows_of(rows), rows_of(y),
                         row.width(),        y.width(),     write == Write::kAccumulate};
  const ExpertOrderTable& table = table_of<ExpertOrderTable>(exec.isa);
  for_blocks(exec, row_blocks(y.rows(), y.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.combine(args, begin, end); });
}

}  // namespace weft::kernels::cpu
