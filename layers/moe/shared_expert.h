#pragma once

#include "layers/basic/mlp.h"

namespace weft {

enum class SharedGate : uint8_t { kNone, kSigmoid };

// The expert that every token visits:  y = f(x), or sigmoid(<w, x>) f(x) with a gate w [1, hidden].
//
// The gate is folded into the hidden row, like the router's weights (layers/moe/experts.h), so that
// f(x) is not kept for its gradient.
class SharedExpert {
 public:
  SharedExpert(const Build& build, int64_t width, SharedGate gate);

  // x, dy: this tensor rank's part of the span's tokens (layers/basic/token_shards.h). Forward in
  // halves: up to the hidden channels of all tokens of the span, and from there.
  Tensor enter(Exec& exec, const Tensor& x, const StepContext& context, SavedStack& saved) const;
  Tensor leave(Exec& exec, const Tensor& hidden) const;
  Tensor backward(Exec& exec, const Tensor& dy, const StepContext& context,
                  SavedStack& saved) const;

 private:
  Tensor backward_all(Exec& exec, const Tensor& dy, SavedStack& saved) const;

  struct Saved {
    Tensor x, logit;  // logit: [tokens, 1] f32
  };
  Mlp mlp_;
  Parameter* gate_;  // f32; null without a gate
  Communicator* tensor_ranks_;
  DType compute_;
};

}  // namespace weft
