#pragma once

#include "launcher/verify/golden.h"

namespace weft {

// Cores "deltanet" and "gated_deltanet": the delta rule alone, with its gates given.
bool is_delta_core(const GoldenCase& golden);
void run_delta_core(Exec& exec, const GoldenCase& golden, Comparison& compare);

}  // namespace weft
