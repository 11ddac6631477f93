#pragma once

#include <string>
#include <vector>

#include "core/run_config.h"

namespace weft {

// Keys that a config may hold but that this version does not act on yet: set to anything but their
// default they are refused here, so that nothing is silently ignored. Building a feature removes
// its line.
void refuse_unbuilt(const Config& config);

// What the start page must say about keys that are accepted without effect.
std::vector<std::string> unbuilt_notes(const Config& config);

}  // namespace weft
