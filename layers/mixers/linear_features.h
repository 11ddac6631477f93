#pragma once

#include "layers/context/mixer.h"
#include "layers/mixers/linear_core.h"

namespace weft {

// Rebased: queries and keys become features, whose products are (q^ . k^)^2 / dk of normalized
// queries and keys, and the read is divided by the sum of its weights. The norm's gamma and beta
// are weights of the core, one for all heads. Features and values are f32:
// kernels/rows/rebased.h says why.
CoreMaker rebased_core(const HeadOptions& heads);

}  // namespace weft
