#pragma once

#include <span>

#include "core/memory/exec.h"

// Causal softmax attention by blocks, never forming a tokens x tokens matrix:
//   o_i = sum_j softmax_j(scale q_i . k_j + c_i - c_j) v_j
// over j <= i in the same document, i - j < window, with c the running sum of log_forget inside the
// document (forgetting attention, FoX) or zero. i and j count the keys of a document; its queries
// may be some of these positions only: the last ones where a cache goes before them, or those of
// one rank where keys of all ranks were gathered.
namespace weft::kernels {

// Adaptive computation pruning: blocks are left out in which every c_i - c_j is so low that all of
// them together weigh at most epsilon in the softmax of any query (kernels/attention/forgetting.h).
struct Pruning {
  bool on = false;  // needs log_forget
  float log_epsilon = -10.0f;
  // U >= |scale q_i . k_j| of each head, f32 [heads]. Not given: from the largest norms of q and k
  // in every document and head.
  ConstView bound = {};
};

// Blocks of queries x keys of one head: those that causality and window leave, and those computed.
struct BlockCount {
  int64_t kept = 0, causal = 0;
};

// q [tokens, heads * key], k [keys, kv_heads * key], v [keys, kv_heads * value], all f32 or all
// bf16, rows may be strided. Query head h reads kv head h / (heads / kv_heads). documents: offsets
// of the rows of q, n + 1 entries.
struct Attention {
  ConstView q, k, v;
  std::span<const int32_t> documents;
  int64_t heads = 1, kv_heads = 1;
  int64_t key = 0, value = 0;
  float scale = 1.0f;
  int64_t window = 0;  // keys a token sees, itself included; 0: all
  // f32 [keys, heads], not positive: one gate per query head. Not given: nothing is forgotten.
  ConstView log_forget = {};
  Pruning pruning = {};
  // Offsets of the rows of k, v and log_forget, n + 1 entries. Not given: those of `documents`.
  std::span<const int32_t> key_documents = {};
  // Position of each document's first query among its keys, n entries, query_start + queries <=
  // keys. Not given: keys - queries. What lies after the last query's position is never read, so
  // that k and v may be caches which are not yet full.
  std::span<const int32_t> query_start = {};
};

// out [tokens, heads * value], type of v or f32;  log_sum_exp [tokens, heads] f32, for backward.
// report: one entry per head, or none when it is not wanted.
void attention_forward(Exec& exec, const Attention& in, View out, View log_sum_exp,
                       std::span<BlockCount> report = {});

struct AttentionGradients {
  // Type of the inputs or f32; overwritten, all rows: zero where no query sees a key.
  View dq, dk, dv;
  View d_log_forget = {};  // f32 [keys, heads]; overwritten likewise; given when log_forget is
};
// Leaves out the same blocks as forward; the choice counts as constant.
void attention_backward(Exec& exec, const Attention& in, ConstView out, ConstView log_sum_exp,
                        ConstView d_out, const AttentionGradients& gradients);

}  // namespace weft::kernels
