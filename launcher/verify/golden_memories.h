#pragma once

#include "launcher/verify/golden.h"
#include "layers/context/feed_forward.h"

namespace weft {

// Cases of a mixture of memories. In low precision the routing is taken from the file: margins
// between memories are smaller than the rounding.
void give_memories(Exec& exec, const GoldenCase& golden, const Build& build, StepContext& step);

// The router's choice and weights, and the balance loss that the layer reported. Does nothing for
// other cases.
void check_memories(Runtime& runtime, const GoldenCase& golden, StepContext& step,
                    Comparison& compare);

}  // namespace weft
