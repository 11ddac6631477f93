#pragma once

#include "core/parameter.h"

// Changes of all parameters of a rank at once.
namespace weft {

void initialize(Exec& exec, ParameterStore& store, uint64_t seed);  // masters, then publishes them
// value = master in compute precision, after masters were written; versions advance.
void publish(Exec& exec, ParameterStore& store);
void zero_gradients(Exec& exec, ParameterStore& store);

}  // namespace weft
