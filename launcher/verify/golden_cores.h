#pragma once

#include "launcher/verify/golden.h"

namespace weft {

// Runs a case of kind "core" whose recurrence decays by channel, or HGRN2's lower bounds; false for
// other cases.
bool run_golden_core(Exec& exec, const GoldenCase& golden, Comparison& compare);

}  // namespace weft
