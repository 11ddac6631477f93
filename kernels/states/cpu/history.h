#pragma once

#include "kernels/states/history.h"

// The CPU's side of kernels/states/history.h: arguments are checked.
namespace weft::kernels::cpu {

void append_history(Exec& exec, ConstView counts, ConstView added, ConstView entering,
                    View leaving);
void append_history_adjoint(Exec& exec, ConstView counts, ConstView d_leaving, View d_entering);
void add_history_counts(Exec& exec, ConstView first, ConstView second, int64_t rows, View sum);

}  // namespace weft::kernels::cpu
