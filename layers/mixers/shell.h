#pragma once

#include <memory>
#include <vector>

#include "kernels/gates/activation.h"
#include "kernels/rows/norm.h"
#include "kernels/rows/rope.h"
#include "layers/basic/linear.h"
#include "layers/basic/wide_norm.h"
#include "layers/context/mixer.h"
#include "layers/mixers/shell_convs.h"
#include "layers/recurrence/scalar.h"

namespace weft {

// What distinguishes the mixers whose state decays by one fixed number per head.
struct ScalarRule {
  HeadOptions heads = {};
  kernels::Activation feature_map = kernels::Activation::kIdentity;  // on q and k
  bool map_values = false;                                           // and on v
  bool short_conv = false;            // of q, k and v, before all else is done to them
  std::vector<float> log_decay = {};  // per head, the same for every token; empty: no decay
  float scale = 1.0f;                 // of the read
  bool rope = false;
  double rope_base = 10000.0;
  bool normalize = false;  // divide by the sum of the weights
  bool output_gate = true;
  kernels::GateActivation gate = kernels::GateActivation::kSilu;  // of the output gate
  bool joint_norm = false;  // one norm over all heads, with a weight per channel
  float norm_epsilon = 1e-5f;
};

// The default layer around a linear recurrence:
//   q, k, v, gate = projections of x;   q, k, v -> short convolutions, where asked for
//   q, k -> feature map or rotation
//   o = recurrence(q, k, v)
//   y = o_proj( RMSNorm_head(o) * silu(gate) )        (or RMSNorm over all heads, or a sigmoid)
class ScalarShell final : public Mixer {
 public:
  ScalarShell(const MixerBuild& build, ScalarRule rule);

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override;
  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override;
  double flops_per_token(int64_t length) const override;

 private:
  struct Saved {
    Tensor x;          // the layer's input
    Tensor projected;  // [tokens, q | k | v | gate]
    Tensor qkv;        // after the convolutions; without any it is `projected`; q and k rotated
    Tensor mapped;     // [tokens, q | k (| v)] after the feature map; undefined for the identity
    Tensor out;        // [tokens, heads * dv]
    Tensor inv_rms;    // [tokens, heads], joint: [tokens, 1]
    Tensor normed;     // as out: before the gate; undefined where one kernel does both
  };
  enum Part { kQ, kK, kV, kGate };
  View part(const Tensor& projected, Part which) const;  // empty for a gate that is not there
  ScalarRecurrence::Inputs inputs(const Saved& frame) const;
  kernels::HeadNorm head_norm() const;
  Tensor finish(Exec& exec, Saved& frame) const;  // norm and gate
  Tensor finish_backward(Exec& exec, const Saved& frame, const Tensor& dy, View d_gate) const;
  int64_t mapped_width() const {
    return widths_[kQ] + widths_[kK] + (rule_.map_values ? widths_[kV] : 0);
  }
  bool maps() const { return rule_.feature_map != kernels::Activation::kIdentity; }
  // Rotation and feature map of queries, or of keys (and values).
  void prepare(Exec& exec, const Sequence& sequence, const Saved& frame, Part which) const;
  void rotate(Exec& exec, const Sequence& sequence, View rows, int64_t heads,
              kernels::Rope::Direction direction) const;

  ScalarRule rule_;
  DType compute_;
  int64_t hidden_;
  int64_t widths_[4];  // of the parts
  Linear project_;
  ScalarRecurrence recurrence_;
  Parameter* norm_ = nullptr;             // [dv]
  std::unique_ptr<WideNorm> joint_norm_;  // over all heads, in its place
  Linear out_;
  ShellConvs convs_;
};

}  // namespace weft
