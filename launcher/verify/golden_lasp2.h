#pragma once

#include "launcher/verify/golden.h"

namespace weft {

// Cases "lasp2": a core over the segments of a sequence, each on its own rank (a thread). Checks a
// segment's effect on a state (segment_phi, segment_delta), its initial state (segment_state_in)
// and the outputs.
bool is_lasp2(const GoldenCase& golden);
void run_lasp2(Exec& exec, const GoldenCase& golden, Comparison& compare);

}  // namespace weft
