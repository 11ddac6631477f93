#pragma once

#include "core/run_config.h"

namespace weft {

// The rules between a config and a number of ranks: the product of the degrees, whole heads,
// experts, layers, tokens and micro-batches per rank. Throws ConfigError that shows the whole
// product, the rule that is broken, and the nearest layouts of as many ranks that keep all rules.
void check_layout(const Config& config, int world);

}  // namespace weft
