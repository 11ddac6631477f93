#include "kernels/routing/expert_order.h"

#include <algorithm>

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/routing/cpu/expert_order.h"

namespace weft::kernels {
namespace {

int64_t check_offsets(const HostTable<int64_t>& offsets, std::string_view name) {
  WEFT_CHECK(
      !offsets.empty() && offsets.front() == 0 && std::is_sorted(offsets.begin(), offsets.end()),
      "{}: {} offsets that do not start at 0 or fall", name, offsets.size());
  return offsets.back();
}

// Rows of pairs [n, k] -> number of pairs.
int64_t check_pairs(ConstView row, std::string_view name) {
  const int64_t pairs = row.shape.elements();
  check_vector<int32_t>(row, pairs, name);
  return pairs;
}

}  // namespace

ExpertOrder order_by_expert(Exec& exec, ConstView index, int64_t experts) {
  const Tensor count = exec.host({experts}, DType::kI64, Label::kScratch);
  count_pairs(exec, index, count);
  std::vector<int64_t> offsets{0};
  for (const int64_t rows : download<int64_t>(exec, count)) {
    offsets.push_back(offsets.back() + rows);
  }
  const int64_t tokens = nothing_in(index) ? 0 : index.rows();
  ExpertOrder order{
      HostTable<int64_t>(std::move(offsets)), {}, exec.host({tokens, index.width()}, DType::kI32)};
  order.token = exec.host({order.offsets.back()}, DType::kI32);
  order_pairs(exec, index, order.offsets, order.token, order.row);
  return order;
}

ExpertOrder limit_to_capacity(Exec& exec, const ExpertOrder& order, ConstView weight,
                              int64_t capacity, Keep keep) {
  WEFT_CHECK(capacity >= 0, "limit_to_capacity: capacity {}", capacity);
  std::vector<int64_t> offsets{0};
  for (size_t e = 0; e + 1 < order.offsets.size(); ++e) {
    const int64_t rows = order.offsets[e + 1] - order.offsets[e];
    offsets.push_back(offsets.back() + std::min(rows, capacity));
  }
  ExpertOrder kept{
      HostTable<int64_t>(std::move(offsets)), {}, exec.host(order.row.shape(), DType::kI32)};
  kept.token = exec.host({kept.offsets.back()}, DType::kI32);
  keep_pairs(exec, {.offsets = order.offsets,
                    .token = order.token,
                    .row = order.row,
                    .weight = keep == Keep::kHeaviest ? weight : ConstView{},
                    .kept_offsets = kept.offsets,
                    .kept_token = kept.token,
                    .kept_row = kept.row});
  return kept;
}

void count_pairs(Exec& exec, ConstView index, View count) {
  if (nothing_in(count)) return;
  check_vector<int64_t>(count, count.shape.elements(), "count_pairs: count");
  if (!nothing_in(index)) check_pairs(index, "count_pairs: index");
  dispatch(exec,
           {.name = "count_pairs",
            .type = DType::kI32,
            .read = bytes_of(index),
            .written = bytes_of(count),
            .over = Over::kIndices},
           cpu::count_pairs, index, count);
}

void order_pairs(Exec& exec, ConstView index, const HostTable<int64_t>& offsets, View token,
                 View row) {
  if (nothing_in(index)) return;
  const int64_t rows = check_offsets(offsets, "order_pairs");
  const int64_t pairs = check_pairs(index, "order_pairs: index");
  check_vector<int32_t>(token, rows, "order_pairs: token");
  check_vector<int32_t>(row, pairs, "order_pairs: row");
  dispatch(exec,
           {.name = "order_pairs",
            .type = DType::kI32,
            .read = bytes_of(index),
            .written = bytes_of(token, row),
            .over = Over::kIndices},
           cpu::order_pairs, index, offsets, token, row);
}

void keep_pairs(Exec& exec, const KeepPairs& call) {
  if (nothing_in(call.row)) return;
  const int64_t pairs = check_pairs(call.row, "keep_pairs: row");
  const int64_t rows = check_offsets(call.offsets, "keep_pairs");
  WEFT_CHECK(rows == pairs, "keep_pairs: {} of {} pairs have rows", rows, pairs);
  WEFT_CHECK(call.kept_offsets.size() == call.offsets.size(),
             "keep_pairs: {} experts keep rows of {}", call.kept_offsets.size(),
             call.offsets.size());
  const int64_t kept = check_offsets(call.kept_offsets, "keep_pairs: kept");
  check_vector<int32_t>(call.token, rows, "keep_pairs: token");
  if (given(call.weight)) check_numbers(call.weight, pairs, "keep_pairs: weight");
  check_vector<int32_t>(call.kept_token, kept, "keep_pairs: kept_token");
  check_vector<int32_t>(call.kept_row, pairs, "keep_pairs: kept_row");
  dispatch(exec,
           {.name = "keep_pairs",
            .type = DType::kI32,
            .read = bytes_of(call.token, call.row, call.weight),
            .written = bytes_of(call.kept_token, call.kept_row),
            .over = Over::kIndices},
           cpu::keep_pairs, call);
}

void permute_pairs(Exec& exec, ConstView row, ConstView values, View sorted) {
  if (nothing_in(row)) return;
  const int64_t pairs = check_pairs(row, "permute_pairs: row");
  check_numbers(values, pairs, "permute_pairs: values");
  check_numbers(sorted, sorted.shape.elements(), "permute_pairs: sorted");
  dispatch(exec,
           {.name = "permute_pairs", .read = bytes_of(row, values), .written = bytes_of(sorted)},
           cpu::permute_pairs, row, values, sorted);
}

void unpermute_pairs(Exec& exec, ConstView row, ConstView sorted, View values) {
  if (nothing_in(row)) return;
  const int64_t pairs = check_pairs(row, "unpermute_pairs: row");
  check_numbers(sorted, sorted.shape.elements(), "unpermute_pairs: sorted");
  check_numbers(values, pairs, "unpermute_pairs: values");
  dispatch(exec,
           {.name = "unpermute_pairs", .read = bytes_of(row, sorted), .written = bytes_of(values)},
           cpu::unpermute_pairs, row, sorted, values);
}

void combine_rows(Exec& exec, ConstView row, ConstView rows, View y, Write write) {
  if (nothing_in(y)) return;
  check_real(y, "combine_rows: y");
  check_pairs(row, "combine_rows: row");
  WEFT_CHECK(row.rows() == y.rows(), "combine_rows: {} rows for the choices of {} tokens", y.rows(),
             row.rows());
  if (!nothing_in(rows)) check_matrix(rows, rows.rows(), y.width(), "combine_rows: rows");
  const bool adds = write == Write::kAccumulate;
  dispatch(exec,
           {.name = "combine_rows",
            .type = rows.dtype,
            .flops = elements(rows),
            .read = bytes_of(row, rows) + (adds ? bytes_of(y) : 0),
            .written = bytes_of(y)},
           cpu::combine_rows, row, rows, y, write);
}

}  // namespace weft::kernels
