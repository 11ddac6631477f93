#pragma once

#include <optional>
#include <vector>

#include "kernels/activation.h"
#include "layers/linear.h"
#include "layers/mixers/mixer.h"

namespace weft {

// What distinguishes the mixers whose state decays by one number per head.
struct ScalarRule {
  HeadOptions heads = {};
  kernels::Activation feature_map = kernels::Activation::kIdentity;  // on q and k
  std::vector<float> log_decay = {};  // per head, the same for every token; empty: no decay
  float scale = 1.0f;            // of the read
  bool rope = false;
  double rope_base = 10000.0;
  bool normalize = false;        // divide by the sum of the weights
  bool output_gate = true;
};

// The default layer around a linear recurrence (per head; vectors are rows):
//   q, k, v, gate = projections of x;  q, k -> feature map or rotation
//   M_t = e^{g_h} M_{t-1} + k_t^T v_t,   o_t = scale * q_t M_t
//   y = o_proj( RMSNorm_head(o) * silu(gate) )
// State: M [documents, heads, dk, dv]; with `normalize` also z [documents, heads, dk].
class ScalarShell final : public Mixer {
 public:
  ScalarShell(const MixerBuild& build, ScalarRule rule);

  Tensor forward(Exec& exec, const Tensor& x, const Sequence& sequence, MixerState* state,
                 SavedStack& saved) const override;
  Tensor backward(Exec& exec, const Tensor& dy, const Sequence& sequence, MixerState* d_state,
                  SavedStack& saved) const override;
  double flops_per_token(int64_t length) const override;

 private:
  struct Saved {
    Tensor projected;      // [tokens, q | k | v | gate]; q and k rotated where rope is on
    Tensor qk;             // [tokens, q | k] after the feature map; undefined for the identity
    Tensor wide_values;    // normalize: (v | 1)
    Tensor wide_out;       // normalize: (numerator | denominator), f32
    Tensor out;            // [tokens, heads * dv]
    Tensor inv_rms;        // [tokens, heads]
    Tensor entering;       // state entering, as the scan takes it; undefined: zero
  };

  struct Columns {
    int64_t q, k, v, gate;  // widths
  };
  View part(const Tensor& projected, int which) const;
  void mix(Exec& exec, const Sequence& sequence, MixerState* state, Saved& frame) const;
  void mix_backward(Exec& exec, const Sequence& sequence, const Tensor& d_out, MixerState* d_state,
                    const Saved& frame, const Tensor& d_projected) const;

  ScalarRule rule_;
  DType compute_;
  int64_t hidden_;
  Columns columns_;
  Linear project_;
  Parameter& norm_;  // [dv]
  Linear out_;
  Tensor log_decay_;  // [heads], borrowed from rule_
};

}  // namespace weft
