#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/tile/view.h"

namespace weft::kernels {

// A query head of a group that shares keys and values.
struct FewQueriesHead {
  const double* forgotten = nullptr;  // running sums of the log forget gates; absent: no bias
  int64_t first = 0;                  // keys before this one are left out
};

// The few queries of a document, all query heads of one group, against keys [first, end). Views and
// pointers begin with the document's first query and first key.
struct FewQueriesTask {
  tile::In q;     // [queries, group * key]
  tile::In k, v;  // [keys, key], [keys, value]
  float scale = 1.0f;
  int64_t window = 0;  // 0: no limit
  int64_t start = 0;   // position of the first query among the keys
  int64_t first = 0, end = 0;
  const FewQueriesHead* heads = nullptr;  // `group` of them
  int64_t group = 1;
};

struct FewQueriesTable {
  int64_t (*scratch)(int64_t queries, int64_t group, int64_t key);  // floats, of one thread
  // Results over these keys for every query and head, partials [queries, group, value + 2]: values
  // weighted by e^{score - largest}, then the largest score, then the sum of the weights. Where no
  // key is seen: zeros, -1e30, zero.
  void (*forward)(const FewQueriesTask& task, float* partials, float* scratch);
};
const FewQueriesTable& table(IsaTag<Isa::kPlain>, const FewQueriesTable*);
const FewQueriesTable& table(IsaTag<Isa::kAvx2>, const FewQueriesTable*);
const FewQueriesTable& table(IsaTag<Isa::kAvx512>, const FewQueriesTable*);

}  // namespace weft::kernels
