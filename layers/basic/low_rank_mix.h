#pragma once

#include <array>

#include "layers/basic/linear.h"
#include "layers/basic/token_mix.h"
#include "layers/context/mixer.h"

namespace weft {

// Five inputs made of one, each somewhere between a token and the one before it, by weights that
// depend on the token through a narrow layer (RWKV-6). With D_t = x_{t-1} - x_t:
//   h = tanh( x_proj.0 (x + D * mu) ),   m_n = x_proj.2[:, n] h_n + x_bias_n,   x_n = x + D * m_n
// x [tokens, hidden] compute type. Every tensor rank holds all of it; the gradients that reach it
// there are partial sums.
class LowRankMix {
 public:
  enum Which { kR, kW, kK, kV, kG, kCount };
  using Inputs = std::array<Tensor, kCount>;

  LowRankMix(const Build& build, int64_t rank);

  // One forward pass: gives each input when it is asked for, once.
  class Pass;
  Pass forward(Exec& exec, const Tensor& x, const MixerContext& context, SavedStack& saved) const;
  // dx f32
  Tensor backward(Exec& exec, const Inputs& d, const MixerContext& context,
                  SavedStack& saved) const;

  double flops_per_token() const;

 private:
  struct Saved {
    Tensor x, before;    // before: x_{t-1}
    Tensor low_in, low;  // [tokens, 5 * rank] before and after the tanh
    Inputs mix;          // m_n
  };

  DType compute_;
  int64_t hidden_, rank_;
  PreviousToken previous_;
  Parameter& mu_;  // [hidden]
  Linear down_;
  Parameter& up_;    // [hidden, 5 * rank]
  Parameter& bias_;  // [5, hidden]
};

class LowRankMix::Pass {
 public:
  Tensor input(Exec& exec, Which n) const;

 private:
  friend class LowRankMix;
  Pass(const LowRankMix& mix, const Saved& frame) : mix_(mix), frame_(frame) {}
  const LowRankMix& mix_;
  Saved frame_;
};

}  // namespace weft
