#pragma once

#include "layers/recurrence/attention.h"

namespace weft {

// Latent attention over its latents, without keys and values of the heads. With a key's own part
// K_h c and value V_h c of a latent c, and the part r that all heads share,
//   q_h . k_h = q_shared . r + (K_h^T q_own) . c,      o_h = V_h sum_j w_j c_j
// so that all heads attend to one row (r | c) per token, which is all that a cache must hold. More
// work per pair of tokens than attention over whole keys: for decoding.
class LatentRows {
 public:
  struct Options {
    int64_t heads = 0;
    int64_t shared = 0, own = 0;  // parts of a query
    int64_t value = 0, rank = 0;  // of a head's output and of a latent
    float scale = 1.0f;
  };
  // keys: K [heads * own, rank],  values: V [heads * value, rank]
  LatentRows(const Options& options, Parameter& keys, Parameter& values);

  // q [tokens, heads * (shared | own)], rows [tokens, shared | rank]  ->  [tokens, heads * value]
  Tensor forward(Exec& exec, ConstView q, ConstView rows, const Sequence& sequence, State* cache,
                 SavedStack& saved) const;
  // dq and d_rows are overwritten; adds into the gradients of K and V.
  void backward(Exec& exec, ConstView q, ConstView rows, const Sequence& sequence, ConstView d_out,
                State* d_cache, View dq, View d_rows, SavedStack& saved) const;

 private:
  struct Saved {
    Tensor q;    // [tokens, heads * (shared | rank)]
    Tensor out;  // [tokens, heads * rank]
  };
  int64_t width() const { return o_.shared + o_.rank; }
  AttentionInputs inputs(const Saved& f, ConstView rows) const;

  Options o_;
  Parameter &keys_, &values_;
  AttentionRows attention_;
};

}  // namespace weft
