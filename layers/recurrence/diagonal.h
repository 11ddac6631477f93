#pragma once

#include "core/saved.h"
#include "kernels/diagonal_scan.h"
#include "layers/mixers/mixer.h"

namespace weft {

// The recurrence whose state decays by one number per key channel and token, without its weights:
//   M_t = diag(e^{g_t}) M_{t-1} + k_t^T v_t,    o_t = scale * q_t M_t           (vectors are rows)
// or, with a bonus u,  o_t = scale * (q_t M_{t-1} + (q_t * u * k_t) . 1 v_t).
// State: M [documents, heads, dk, dv].
class DiagonalRecurrence {
 public:
  struct Options {
    HeadOptions heads;
    float scale = 1.0f;
  };
  // Per token, flat heads: q [tokens, heads * dk], k [tokens, kv_heads * dk], v [tokens, kv_heads * dv];
  // log_decay f32 [tokens, kv_heads * dk]; bonus f32 [heads * dk] or empty. The caller keeps them until
  // backward.
  struct Inputs {
    ConstView q, k, v, log_decay;
    ConstView bonus = {};
  };
  struct Gradients {  // overwritten, but for the bonus, which is added to
    View q, k, v, log_decay;
    View bonus = {};
  };

  explicit DiagonalRecurrence(const Options& options) : options_(options) {}

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
  kernels::DiagonalScan scan(const Inputs& in, const Sequence& sequence) const;

  Options options_;
};

}  // namespace weft
