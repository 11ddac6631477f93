#pragma once

#include "layers/sequence.h"

namespace weft {

// The rows of all sequence ranks in the order of the whole batch: [batch rows * length, width].
Tensor gather_rows(Exec& exec, const Sequence& sequence, ConstView mine);

// The adjoint: sums what the ranks have for each other's rows and returns this rank's, f32.
Tensor scatter_rows(Exec& exec, const Sequence& sequence, ConstView all);

}  // namespace weft
