#pragma once

#include "kernels/gates/mlstm.h"

// The CPU's side of kernels/gates/mlstm.h: arguments are checked.
namespace weft::kernels::cpu {

void mlstm_gates_forward(Exec& exec, const MlstmGates& gates, View log_decay, View rest, View m);
void mlstm_gates_backward(Exec& exec, const MlstmGates& gates, const MlstmGatesBackward& back);
void mlstm_keys(Exec& exec, ConstView k, ConstView i, ConstView rest, View keys);
void mlstm_read_forward(Exec& exec, const MlstmRead& in, View out);
void mlstm_read_backward(Exec& exec, const MlstmRead& in, ConstView d_out, View d_wide, View d_rest,
                         View dm);
void center_heads(Exec& exec, int64_t heads, ConstView x, View y);

}  // namespace weft::kernels::cpu
