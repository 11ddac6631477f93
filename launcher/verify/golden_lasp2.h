#pragma once

#include "launcher/verify/golden.h"

namespace weft {

// Cases "lasp2": a core over the segments of a sequence, each on a rank (a thread) of its own. What
// a segment does to a state (segment_phi, segment_delta), what enters it (segment_state_in) and
// what all of them give.
bool is_lasp2(const GoldenCase& golden);
void run_lasp2(Exec& exec, const GoldenCase& golden, Comparison& compare);

}  // namespace weft
