#pragma once

#include "core/saved.h"
#include "kernels/scalar_scan.h"
#include "layers/mixers/mixer.h"

namespace weft {

// The recurrence whose state decays by one number per head and token, without its weights:
//   M_t = e^{g_t} M_{t-1} + k_t^T v_t,    o_t = scale * q_t M_t                 (vectors are rows)
// and, with `normalize`,  z_t = z_{t-1} + k_t,  o_t <- o_t / (scale * q_t . z_t + 1e-10).
// State: M [documents, heads, dk, dv], and z [documents, heads, dk] with `normalize`.
class ScalarRecurrence {
 public:
  struct Options {
    HeadOptions heads;
    float scale = 1.0f;
    bool normalize = false;
  };
  // Per token, flat heads: q [tokens, heads * dk], k [tokens, kv_heads * dk], v [tokens, kv_heads * dv];
  // log_decay f32 [tokens, heads], [heads] or empty. The caller keeps them until backward.
  struct Inputs {
    ConstView q, k, v, log_decay;
  };
  struct Gradients {  // overwritten; d_log_decay empty when not wanted
    View q, k, v, log_decay;
  };

  explicit ScalarRecurrence(const Options& options) : options_(options) {}

  // [tokens, heads * dv] in the type of v. `state` enters as before the tokens, leaves as after.
  Tensor forward(Exec& exec, const Inputs& in, const Sequence& sequence, MixerState* state,
                 SavedStack& saved) const;
  // `d_state` enters as the gradient of the leaving state, leaves as that of the entering one.
  void backward(Exec& exec, const Inputs& in, const Sequence& sequence, const Tensor& d_out,
                MixerState* d_state, const Gradients& gradients, SavedStack& saved) const;

  double flops_per_token() const;

 private:
  struct Saved {
    Tensor values;    // normalize: (v | 1)
    Tensor out;       // normalize: (numerator | denominator), f32
    Tensor entering;  // [documents, heads, dk, dv (+ 1)]; undefined: zero
  };
  kernels::ScalarScan scan(const Inputs& in, ConstView values, const Sequence& sequence) const;

  Options options_;
};

}  // namespace weft
