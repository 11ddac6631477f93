#pragma once

#include "kernels/states/mlstm.h"

// The CPU's side of kernels/states/mlstm.h: arguments are checked.
namespace weft::kernels::cpu {

void mlstm_apply(Exec& exec, ConstView b, const MlstmState& span, const MlstmState& entering,
                 const MlstmStateOut& leaving);
void mlstm_apply_adjoint(Exec& exec, ConstView b, const MlstmState& span,
                         const MlstmState& entering, const MlstmState& d_leaving,
                         const MlstmStateOut& d_entering);
void mlstm_widen(Exec& exec, const MlstmState& state, View wide);
void mlstm_widen_backward(Exec& exec, ConstView wide, ConstView m, ConstView d_wide,
                          const MlstmStateOut& d);
void mlstm_stabilise(Exec& exec, ConstView wide, ConstView rest, ConstView m, View c, View n);
void mlstm_stabilise_backward(Exec& exec, ConstView wide, ConstView rest, ConstView m,
                              const MlstmState& d, const MlstmWideGradient& out);
void last_rows(Exec& exec, std::span<const int32_t> documents, ConstView rows, ConstView entering,
               View last);

}  // namespace weft::kernels::cpu
