#pragma once

#include "launcher/verify/golden.h"

namespace weft {

// Cores "rwkv7" and "kda": the diagonal plus rank-one transition alone, with its gates given.
bool is_rank_one_core(const GoldenCase& golden);
void run_rank_one_core(Exec& exec, const GoldenCase& golden, Comparison& compare);

}  // namespace weft
