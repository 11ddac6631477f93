#pragma once

#include "kernels/sequence/history.h"

namespace weft::kernels::cpu {

// leaving = the last rows of every document with its entering history (or zeros) before it. The two
// may be the same bytes.
void leave_history(Exec& exec, const HistoryShape& shape, ConstView entering, ConstView x,
                   View leaving);

// f32 [documents, 2 * rows, width]: the entering history of every document, then its first tokens
// (as many as there are, at most `rows`).
Tensor history_edges(Exec& exec, const HistoryShape& shape, ConstView entering, ConstView x);

}  // namespace weft::kernels::cpu
