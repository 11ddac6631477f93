#pragma once

#include "layers/recurrence/rows.h"

namespace weft {

// The rows that the queries of a span may see, document by document: those before the span, then
// its own.
struct KeyRows {
  State rows;  // for each kind [rows, width]; empty: the span's own, where they are
  std::vector<int32_t> documents;    // offsets of the rows, n + 1 entries
  std::vector<int32_t> query_start;  // rows before the document's own, n entries
  // For a cache: rows that entered and that no query sees any more, and rows that were not handed
  // on.
  std::vector<int32_t> dropped, left_out;

  bool own() const { return rows.empty(); }
};

// Appends a span's rows to a cache: a state whose tensors have room for more. Rows are never moved
// inside a buffer, only to a new one: what an earlier span saw stays as it was. With a window a
// cache has at most four times its rows.
KeyRows append_to_cache(Exec& exec, const std::vector<ConstView>& kinds, const Sequence& sequence,
                        int64_t window, State& cache);

// The rows of a cache that later tokens see, without room for more.
State cached_rows(Exec& exec, const State& cache, int64_t window);

// Behind the rows that enter a rank's chains.
KeyRows append_to_chains(Exec& exec, const std::vector<ConstView>& kinds, const Sequence& sequence,
                         const State& entering);

// The ways back of gradients d of all rows, f32. To the spans before: d_cache, f32 [documents,
// rows, width] for each kind, enters as the gradient of the cache that was handed on (empty: zero)
// and leaves as that of the one that entered. To the ranks before: a state of chains.
void cache_gradients(Exec& exec, const KeyRows& keys, const Sequence& sequence, const State& d,
                     State& d_cache);
State chain_gradients(Exec& exec, const KeyRows& keys, const Sequence& sequence, const State& d);
// Adds what other ranks had for the last rows of this one's chains.
void add_chain_gradients(Exec& exec, const KeyRows& keys, const Sequence& sequence,
                         const State& received, const State& d);
// The span's own rows.
void own_gradients(Exec& exec, const KeyRows& keys, const Sequence& sequence, const State& d,
                   const std::vector<View>& gradients);

}  // namespace weft
