#pragma once

#include "launcher/verify/golden.h"

namespace weft {

// Cores "ttt", "ttt_ln" and "titans_*": descent with a norm inside its loss, with and without
// momentum, with its gates given.
bool is_descent_core(const GoldenCase& golden);
void run_descent_core(Exec& exec, const GoldenCase& golden, Comparison& compare);

}  // namespace weft
