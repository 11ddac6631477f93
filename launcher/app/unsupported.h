#pragma once

#include "core/config/run_config.h"

namespace weft {

// Keys that this version does not support yet: values other than the default are refused here, so
// that nothing is silently ignored. Implementing a feature removes its line.
void refuse_unbuilt(const Config& config);

}  // namespace weft
