#pragma once

#include "core/config/run_config.h"

namespace weft {

// Keys that a config may hold but that this version does not act on yet: set to anything but their
// default they are refused here, so that nothing is silently ignored. Building a feature removes
// its line.
void refuse_unbuilt(const Config& config);

}  // namespace weft
