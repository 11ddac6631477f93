#pragma once

#include "launcher/verify/golden.h"

namespace weft {

// Cores "rebased", "s4", "mamba", "mamba2" and "mlstm"; false for other cases.
bool run_ssm_core(Exec& exec, const GoldenCase& golden, Comparison& compare);

}  // namespace weft
