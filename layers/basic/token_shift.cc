#include "layers/basic/token_shift.h"

namespace weft {
namespace {}  // namespace

Tensor TokenShift::run(Exec& exec, const ShiftInputs& in, const Sequence& sequence,
                       const State& entering, State* leaving, NothingKept&) const {
  if (leaving != nullptr) *leaving = fresh(exec, sequence);
  kernels::token_shift_forward(
      exec, {heads_, sequence.documents}, in.x, in.logits, in.y,
      {given(entering), leaving == nullptr ? View{} : leaving->at(0).view()});
  return {};
}

void TokenShift::run_backward(Exec& exec, const ShiftInputs& in, const Sequence& sequence,
                              const NothingKept&, const State& entering, const Cotangents& d,
                              const ShiftGradients& gradients) const {
  if (d.d_entering != nullptr) *d.d_entering = fresh(exec, sequence);
  kernels::token_shift_backward(exec, {heads_, sequence.documents}, in.x, in.logits, d.d_out,
                                gradients.dx, gradients.d_logits,
                                {given(entering), given(d.d_leaving),
                                 d.d_entering == nullptr ? View{} : d.d_entering->at(0).view()});
}

State TokenShift::state_gradient(Exec& exec, const ShiftInputs& in, const Sequence& sequence,
                                 const NothingKept& keep, const State& entering,
                                 ConstView dy) const {
  State d_entering;
  const Tensor dx = exec.scratch(in.x.shape, in.x.dtype), d_logits = exec.scratch(in.logits.shape);
  run_backward(exec, in, sequence, keep, entering, {dy, {}, &d_entering}, {dx, d_logits});
  return d_entering;
}

}  // namespace weft
