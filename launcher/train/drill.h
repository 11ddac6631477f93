#pragma once

#include <cstdint>
#include <functional>

namespace weft {

// Fire drills: WEFT_FAIL_AT=RANK:STEP lets that rank fail before that step, to see what then
// happens to the others. RANK:STEP:KIND fails in other ways: "killed" ends the process without a
// word, "hang" stays there for ever, "slow" until the file WEFT_FAIL_UNTIL is there (or for five
// seconds), "asked" until `asked` says that somebody wants the run to stop, "stopped" halts the
// whole process. The moments of a save have drills of their own: parallel/checkpoint/save_drill.h.
void fire_drill(int rank, int64_t step, const std::function<bool()>& asked);
// RANK:STEP:forward:LAYER and RANK:STEP:backward:LAYER fail in the middle of a step.
void fire_drill(int rank, int64_t step, const char* phase, int64_t layer);

}  // namespace weft
