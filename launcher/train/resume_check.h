#pragma once

#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "parallel/checkpoint/checkpoint.h"

namespace weft {

// What a checkpoint and the config that resumes it do not have in common. Another model is refused
// with a ConfigError, and so is other training text: the position of a run counts samples, which
// means nothing in other data. What changes the run is taken from the config; the lines returned
// say what it was and is.
//
// `now` is what this run would save: of it, data (contents by role, launcher/train/run_data.h) and
// layout are compared. Paths do not count.
std::vector<std::string> check_resumable(const Config& config, const Manifest& now,
                                         const FoundCheckpoint& checkpoint);

}  // namespace weft
