#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/rows/l2_norm.h"
#include "kernels/rows/norm.h"
#include "layers/basic/linear.h"
#include "layers/context/mixer.h"
#include "layers/mixers/shell_inner_norm.h"
#include "layers/recurrence/delta.h"
#include "layers/recurrence/momentum.h"

namespace weft {

// What distinguishes the mixers whose state is a linear model, trained on the tokens as they come.
struct DescentRule {
  struct Gate {
    std::string name;  // of its projection; one number per head and token
    double bias;       // where it starts
  };
  int64_t heads = 0, dk = 0, dv = 0;
  std::vector<Gate> gates;  // theta alone, or theta, alpha, eta
  float rate = 1.0f;        // theta = rate * sigmoid
  int64_t mini_batch = 1;
  bool output_gate = true;
  bool inner_norm = false;  // a LayerNorm inside the loss; dk and dv are then the same
};

// The layer around descent (layers/recurrence/momentum.h):
//   q, k to unit length per head;   gates = sigmoid(projections of x + biases), f32
//   y = o_proj( RMSNorm_head(recurrence(q, k, v, gates)) * silu(g_proj x) )
// Without momentum and with mini-batches of one token descent is the delta rule, which has the
// faster kernel. With a norm inside the loss it is layers/mixers/shell_inner_norm.h.
class DescentShell final : public Mixer {
 public:
  DescentShell(const MixerBuild& build, const DescentRule& rule);

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override;
  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override;
  double flops_per_token(int64_t length) const override;

 private:
  struct Saved {
    Tensor x;                       // the layer's input
    Tensor projected;               // [tokens, q | k | v | gate]
    Tensor logits;                  // [tokens, gates] f32, with their biases
    Tensor gates;                   // after the sigmoid
    Tensor qk;                      // [tokens, q | k], of unit length; f32 but for the delta rule
    Tensor q_inv_norm, k_inv_norm;  // [tokens, heads]
    Tensor out;                     // [tokens, heads * dv]; f32 with an inner norm
    Tensor inv_rms;                 // [tokens, heads]
  };
  enum Part { kQ, kK, kV, kGate };
  View part(const Tensor& rows, Part which) const;  // empty for a gate that is not there
  View gate(const Tensor& rows, size_t which) const {
    if (which >= rule_.gates.size()) return {};
    return rows.view().columns(static_cast<int64_t>(which) * rule_.heads, rule_.heads);
  }
  int64_t qk_width() const { return 2 * rule_.heads * rule_.dk; }
  MomentumInputs inputs(const Saved& frame) const;
  // `meanwhile`: what may be done while states travel between ranks.
  Tensor descend(Exec& exec, const Saved& frame, const MixerContext& context,
                 const std::function<void()>& meanwhile, SavedStack& saved) const;
  void descend_backward(Exec& exec, const Saved& frame, const Tensor& d_out,
                        const MixerContext& context, const MomentumGradients& gradients,
                        SavedStack& saved) const;
  kernels::HeadNorm head_norm() const;
  kernels::L2Norm l2_norm() const { return {.heads = rule_.heads}; }
  Tensor to_unit(Exec& exec, const Saved& frame, Part which) const;  // inverse lengths
  void open_gates(Exec& exec, const Tensor& x, Saved& frame, SavedStack& saved) const;

  DescentRule rule_;
  DType compute_;
  int64_t hidden_;
  Linear project_, project_gates_;
  std::vector<Parameter*> biases_;  // [heads] each
  std::optional<InnerNorm> inner_norm_;
  std::optional<DeltaRecurrence> delta_;
  MomentumRecurrence recurrence_;
  Parameter& norm_;  // [dv]
  Linear out_;
};

}  // namespace weft
