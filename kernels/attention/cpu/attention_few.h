#pragma once

#include "kernels/attention/attention_ranges.h"
#include "kernels/attention/cpu/forgetting.h"

// Forward attention of documents with a few queries, as in decoding: a block of queries would be
// mostly empty, and a long cache would keep one thread busy. Keys are dealt out in chunks, whose
// results are put together in order.
namespace weft::kernels::cpu {

// From 8 queries on, a strip of the blocks, which is 16 queries wide, costs less.
inline bool has_few_queries(const AttentionRange& range) {
  constexpr int64_t kFew = 8;
  return range.queries.count < kFew;
}

// Rows of out and log_sum_exp of the documents that have few queries. key_block: of `forgetting`.
void few_queries_forward(Exec& exec, const Attention& in, const Forgetting& forgetting,
                         int64_t key_block, View out, View log_sum_exp);

}  // namespace weft::kernels::cpu
