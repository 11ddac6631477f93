#pragma once

#include "layers/mlp.h"

namespace weft {

enum class SharedGate : uint8_t { kNone, kSigmoid };

// The expert that every token visits:  y = f(x), or sigmoid(<w, x>) f(x) with a gate w [1, hidden].
//
// The gate is folded into the hidden row, like the router's weights (layers/moe/experts.h), so that
// f(x) is not kept for its gradient.
class SharedExpert {
 public:
  SharedExpert(const Build& build, int64_t width, SharedGate gate);

  Tensor forward(Exec& exec, const Tensor& x, SavedStack& saved) const;
  Tensor backward(Exec& exec, const Tensor& dy, SavedStack& saved) const;

 private:
  struct Saved {
    Tensor x, logit;  // logit: [tokens, 1] f32
  };
  Mlp mlp_;
  Parameter* gate_;  // f32; null without a gate
};

}  // namespace weft
