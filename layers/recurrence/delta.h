#pragma once

#include "core/saved.h"
#include "kernels/delta_scan.h"
#include "layers/mixers/mixer.h"

namespace weft {

// The (gated) delta rule without its weights:                                  (vectors are rows)
//   M_t = e^{g_t} (I - b_t k_t^T k_t) M_{t-1} + b_t k_t^T v_t,    o_t = scale * q_t M_t
// State: M [documents, heads, dk, dv].
class DeltaRecurrence {
 public:
  struct Options {
    int64_t heads = 0, qk_heads = 0;  // groups of heads share a query and a key
    int64_t dk = 0, dv = 0;
    float scale = 1.0f;
  };
  // Per token, flat heads: q, k [tokens, qk_heads * dk], v [tokens, heads * dv]; beta (b) f32 [tokens,
  // heads]; log_decay (g) the same or empty. The caller keeps them until backward.
  struct Inputs {
    ConstView q, k, v, beta, log_decay;
  };
  struct Gradients {  // overwritten; log_decay empty when there is none
    View q, k, v, beta, log_decay;
  };

  explicit DeltaRecurrence(const Options& options) : options_(options) {}

  // [tokens, heads * dv] in the type of v. `state` enters as before the tokens, leaves as after.
  Tensor forward(Exec& exec, const Inputs& in, const Sequence& sequence, MixerState* state,
                 SavedStack& saved) const;
  // `d_state` enters as the gradient of the leaving state, leaves as that of the entering one.
  void backward(Exec& exec, const Inputs& in, const Sequence& sequence, const Tensor& d_out,
                MixerState* d_state, const Gradients& gradients, SavedStack& saved) const;

  double flops_per_token() const;

 private:
  struct Saved {
    Tensor entering;  // undefined: zero
  };
  kernels::DeltaScan scan(const Inputs& in, const Sequence& sequence) const;

  Options options_;
};

}  // namespace weft
