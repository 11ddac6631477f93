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

  // x, dy: this tensor rank's part of `span_tokens` tokens (layers/token_shards.h).
  Tensor forward(Exec& exec, const Tensor& x, int64_t span_tokens, SavedStack& saved) const;
  Tensor backward(Exec& exec, const Tensor& dy, int64_t span_tokens, SavedStack& saved) const;

 private:
  Tensor forward_all(Exec& exec, const Tensor& x, SavedStack& saved) const;
  Tensor backward_all(Exec& exec, const Tensor& dy, SavedStack& saved) const;

  struct Saved {
    Tensor x, logit;  // logit: [tokens, 1] f32
  };
  Mlp mlp_;
  Parameter* gate_;  // f32; null without a gate
  Communicator* tensor_ranks_;
};

}  // namespace weft
