#pragma once

#include <memory>
#include <string>

#include "kernels/gates/activation.h"
#include "kernels/rows/norm.h"
#include "layers/basic/wide_norm.h"

namespace weft {

// Between a mixer's recurrence and its o_proj: a norm over heads, times act(gate).
struct FinishSpec {
  enum class Norm : uint8_t {
    kNone,      // and no gate
    kHead,      // RMSNorm of each head, one weight per channel of a head
    kCentered,  // LayerNorm of each head, a weight per channel
    kJoint,     // RMSNorm over all heads, a weight per channel
  };
  Norm norm = Norm::kHead;
  std::string name = "o_norm.weight";
  float epsilon = kHeadNormEpsilon;
  kernels::GateActivation gate = kernels::GateActivation::kNone;
  kernels::Activation before = kernels::Activation::kIdentity;  // kJoint: of the norm's input
};

class LinearFinish {
 public:
  // `heads` of width dv here, of which `unit` stay together when tensor ranks share them.
  LinearFinish(const Build& build, const FinishSpec& spec, int64_t heads, int64_t dv,
               int64_t unit = 1);

  struct Saved {
    Tensor out;      // [tokens, heads * dv], of the recurrence; kCentered: less the heads' means
    Tensor active;   // after `before`; undefined for the identity
    Tensor inv_rms;  // [tokens, heads], kJoint: [tokens, 1]
    Tensor normed;   // kJoint: before the gate; undefined without one
  };
  // f.out is given. The gate is empty where there is none.
  Tensor forward(Exec& exec, ConstView gate, Saved& f) const;
  // Gradient of f.out in `type`; adds to that of the weight.
  Tensor backward(Exec& exec, const Saved& f, const Tensor& dy, ConstView gate, View d_gate,
                  DType type) const;

 private:
  kernels::HeadNorm head_norm() const {
    return {.heads = heads_, .epsilon = spec_.epsilon, .gate = spec_.gate};
  }
  Tensor joint(Exec& exec, ConstView gate, Saved& f) const;
  Tensor joint_backward(Exec& exec, const Saved& f, const Tensor& dy, ConstView gate, View d_gate,
                        DType type) const;

  FinishSpec spec_;
  DType compute_;
  int64_t heads_;
  Parameter* weight_ = nullptr;  // [dv], kCentered: [heads * dv]
  std::unique_ptr<WideNorm> joint_;
};

}  // namespace weft
