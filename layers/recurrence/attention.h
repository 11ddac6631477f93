#pragma once

#include "core/memory/saved.h"
#include "kernels/attention/attention.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/key_rows.h"

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
// a span adds to the state are rows, so the state grows (but for a window), and sequence ranks
// exchange rows. State: k [documents, room, kv_heads * dk], v likewise, both in the compute type,
// the log_forget's [documents, room, heads] where there are some, and how many rows of each
// document are filled, i32 [documents].
class AttentionRows final : public RowAlgebra {
 public:
  struct Options {
    HeadOptions heads;
    float scale = 1.0f;
    int64_t window = 0;
    // Values that are channels of their keys, from this one on (one kv head): the cache holds the
    // keys alone, and the gradient of a key is that of both. -1: values are their own.
    int64_t value_begin = -1;
  };
  explicit AttentionRows(const Options& options) : RowAlgebra(options.window), options_(options) {}

  std::string_view program() const override { return "attention"; }

  // [tokens, heads * dv] in the type of v.
  Tensor forward(Exec& exec, const AttentionInputs& in, const AttentionPruning& pruning,
                 const Sequence& sequence, State* cache, SavedStack& saved) const;
  void backward(Exec& exec, const AttentionInputs& in, const AttentionPruning& pruning,
                const Sequence& sequence, ConstView d_out, State* d_cache,
                const AttentionGradients& gradients, SavedStack& saved) const;

  double flops_per_token(int64_t length) const;

 private:
  struct Saved {
    KeyRows keys;
    SeenRows seen;       // of sequence ranks
    Tensor out;          // [tokens, heads * dv]
    Tensor log_sum_exp;  // [tokens, heads]
  };
  bool values_in_keys() const { return options_.value_begin >= 0; }
  // One view for each kind of row that the state has.
  std::vector<ConstView> rows(const AttentionInputs& in) const;
  std::vector<View> rows(const AttentionGradients& gradients) const;
  kernels::Attention attention(const AttentionInputs& in, const AttentionPruning& pruning,
                               const Sequence& sequence, const KeyRows& keys) const;
  void record(Exec& exec, const AttentionInputs& in, const Sequence& sequence,
              const State& entering, const State& cache) const;

  Options options_;
};

}  // namespace weft
