#pragma once

#include <string>

#include "kernels/sequence/token_shift.h"
#include "layers/context/state.h"
#include "layers/recurrence/history.h"

namespace weft {

struct ShiftInputs {
  ConstView x, logits;
  View y;
};
struct ShiftGradients {
  View dx, d_logits;
};

// Each head mixes a token with the one before it by a gate of its own
// (kernels/sequence/token_shift.h). The caller holds x and the logits until backward. The state is
// the last input.
class TokenShift final : public HistoryRecurrence<ShiftInputs, ShiftGradients> {
 public:
  TokenShift(int64_t heads, int64_t width) : HistoryRecurrence(1, heads * width), heads_(heads) {}

  std::string_view program() const override { return "token_shift"; }
  Tensor run(Exec& exec, const ShiftInputs& in, const Sequence& sequence, const State& entering,
             State* leaving, NothingKept&) const override;
  void run_backward(Exec& exec, const ShiftInputs& in, const Sequence& sequence, const NothingKept&,
                    const State& entering, const Cotangents& d,
                    const ShiftGradients& gradients) const override;
  State state_gradient(Exec& exec, const ShiftInputs& in, const Sequence& sequence,
                       const NothingKept&, const State& entering, ConstView dy) const override;

 private:
  int64_t heads_;
};

}  // namespace weft
