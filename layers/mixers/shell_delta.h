#pragma once

#include "kernels/gates/head_decay.h"
#include "kernels/rows/l2_norm.h"
#include "kernels/rows/norm.h"
#include "layers/basic/linear.h"
#include "layers/mixers/shell_convs.h"
#include "layers/recurrence/delta.h"

namespace weft {

// What distinguishes the mixers of the delta rule.
struct DeltaRule {
  int64_t heads = 0;        // of q and k
  int64_t value_heads = 0;  // of v, the gates and the state; groups share a query and a key
  int64_t dk = 0, dv = 0;
  bool short_conv = true;
  bool decay = false;
  float beta_factor = 1.0f;  // 2: eigenvalues of a step may be negative
  bool output_gate = false;
  float norm_epsilon = 1e-5f;  // of the output's norm
};

// The layer around the delta rule:
//   q, k, v = silu(short convolution(projections of x));   q, k to unit length per head
//   beta = factor * sigmoid(b_proj x),   g = -e^{A_log} softplus(a_proj x + dt_bias)   (with decay)
//   y = o_proj( RMSNorm_head(recurrence(q, k, v, beta, g)) * silu(g_proj x) )
// Gates are f32 from their projection on: decays are exponents, and their gradients sums over all
// tokens in which much cancels. The state is that of the recurrence and, a part each, the last
// inputs of the convolutions.
class DeltaShell final : public Mixer {
 public:
  DeltaShell(const MixerBuild& build, const DeltaRule& rule);

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override;
  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override;
  double flops_per_token(int64_t length) const override;

 private:
  struct Saved {
    Tensor x;                       // the layer's input
    Tensor projected;               // [tokens, q | k | v | gate]
    Tensor gates;                   // [tokens, b | a] f32
    Tensor qkv;                     // [tokens, q | k | v] as the recurrence reads them
    Tensor q_inv_norm, k_inv_norm;  // [tokens, heads]
    Tensor beta, log_decay;         // [tokens, value_heads] f32
    Tensor out;                     // [tokens, value_heads * dv]
    Tensor inv_rms;                 // [tokens, value_heads]
  };
  enum Part { kQ, kK, kV, kGate };
  View part(const Tensor& rows, Part which) const;  // empty for a gate that is not there
  enum Gate { kBeta, kDecay };
  View gate(const Tensor& rows, Gate which) const {
    return rows.view().columns(which * rule_.value_heads, rule_.value_heads);
  }
  int64_t qk_width() const { return widths_[kQ] + widths_[kK]; }
  DeltaRecurrence::Inputs inputs(const Saved& frame) const;
  kernels::HeadNorm head_norm() const;
  kernels::L2Norm l2_norm() const { return {.heads = rule_.heads}; }
  kernels::HeadDecay decay_gate(const Saved& frame) const;

  // From projections to what the recurrence reads: convolved or silu, and to unit length.
  void finish_keys(Exec& exec, ShellConvs::Pass& convs, Saved& frame, SavedStack& saved) const;
  void finish_queries(Exec& exec, const Tensor& x, ShellConvs::Pass& convs, Saved& frame,
                      SavedStack& saved) const;
  void to_unit(Exec& exec, const Saved& frame, Part which, const Tensor& inv_norm) const;
  void plain_silu(Exec& exec, const Saved& frame, int64_t begin, int64_t width) const;
  void open_gates(Exec& exec, Saved& frame) const;
  void open_gates_backward(Exec& exec, const Saved& frame, const Tensor& d_beta,
                           const Tensor& d_log_decay, const Tensor& d) const;

  DeltaRule rule_;
  DType compute_;
  int64_t hidden_;
  int64_t widths_[4];  // of the parts
  Linear project_, project_gates_;
  ShellConvs convs_;            // none: silu alone
  Parameter* a_log_ = nullptr;  // [value_heads], with decay
  Parameter* dt_bias_ = nullptr;
  DeltaRecurrence recurrence_;
  Parameter& norm_;  // [dv]
  Linear out_;
};

}  // namespace weft
