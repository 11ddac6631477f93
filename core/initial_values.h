#pragma once

#include "core/parameter.h"

namespace weft {

// Fills the master weights of every parameter by its spec. Element i of a parameter is a function
// of (seed, name, global index i), so that every layout starts from the same model.
void fill_initial_values(Exec& exec, ParameterStore& store, uint64_t seed);

}  // namespace weft
