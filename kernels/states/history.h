#pragma once

#include "core/memory/exec.h"

// Histories as states: the last rows of the tokens before, f32 [n, rows, width], older rows first.
// counts f32 [n]: how many rows a span adds to each, whole numbers from 0 to `rows` (f32, because
// they travel between ranks with the states).
namespace weft::kernels {

// leaving = the last rows of (entering | added), of which the last counts[i] of `added` are new.
void append_history(Exec& exec, ConstView counts, ConstView added, ConstView entering,
                    View leaving);
// d_entering = the rows of d_leaving that entered, where they were; zero where they were lost.
void append_history_adjoint(Exec& exec, ConstView counts, ConstView d_leaving, View d_entering);

// sum = min(rows, first + second): the counts of two spans as one
void add_history_counts(Exec& exec, ConstView first, ConstView second, int64_t rows, View sum);

}  // namespace weft::kernels
