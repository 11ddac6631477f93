#pragma once

#include "core/saved.h"
#include "kernels/attention.h"
#include "layers/mixers/mixer.h"

namespace weft {

// Per token, flat heads: q [tokens, heads * dk], k [tokens, kv_heads * dk], v [tokens, kv_heads *
// dv]; log_forget f32 [tokens, heads] or empty.
struct AttentionInputs {
  ConstView q, k, v;
  ConstView log_forget = {};
};
struct AttentionGradients {  // overwritten
  View q, k, v;
  View log_forget = {};
};

// Which blocks are left out, and where to tell how many (one entry per head; null: nowhere).
struct AttentionPruning {
  kernels::Pruning rule = {};
  std::vector<kernels::BlockCount>* report = nullptr;
};

// Softmax attention without its weights: a token sees the keys of its document up to its own. What
// a span adds to the state are rows, so the state grows (but for a window) and sequence ranks
// exchange rows: keys and values are gathered forward, their gradients summed and scattered
// backward. State: k [documents, room, kv_heads * dk], v likewise, both in the compute type, the
// log_forget's [documents, room, heads] where there are some, and how many rows of each document
// are filled, i32 [documents].
class AttentionRows {
 public:
  struct Options {
    HeadOptions heads;
    float scale = 1.0f;
    int64_t window = 0;
    // Values that are channels of their keys, from this one on (one kv head): the cache holds the
    // keys alone, and the gradient of a key is that of both. -1: values are their own.
    int64_t value_begin = -1;
  };
  explicit AttentionRows(const Options& options) : options_(options) {}

  // [tokens, heads * dv] in the type of v.
  Tensor forward(Exec& exec, const AttentionInputs& in, const AttentionPruning& pruning,
                 const Sequence& sequence, State* cache, SavedStack& saved) const;
  void backward(Exec& exec, const AttentionInputs& in, const AttentionPruning& pruning,
                const Sequence& sequence, ConstView d_out, State* d_cache,
                const AttentionGradients& gradients, SavedStack& saved) const;

  double flops_per_token(int64_t length) const;

 private:
  // The keys that the queries of a span may see; undefined tensors: the span's own.
  struct Keys {
    Tensor k, v, log_forget;
    std::vector<int32_t> documents, query_start;
    std::vector<int32_t>
        dropped;  // by document: rows of the entering cache that no query can see any more
  };
  struct Saved {
    Keys keys;
    Tensor out;          // [tokens, heads * dv]
    Tensor log_sum_exp;  // [tokens, heads]
  };
  Keys cached(Exec& exec, const AttentionInputs& in, const Sequence& sequence, State& cache) const;
  Keys gathered(Exec& exec, const AttentionInputs& in, const Sequence& sequence) const;
  bool values_in_keys() const { return options_.value_begin >= 0; }
  kernels::Attention attention(const AttentionInputs& in, const AttentionPruning& pruning,
                               const Sequence& sequence, const Keys& keys) const;
  void uncache(Exec& exec, const Keys& keys, const Sequence& sequence,
               const AttentionGradients& of_keys, State& d_cache,
               const AttentionGradients& gradients) const;

  Options options_;
};

}  // namespace weft
