#pragma once

#include "core/config/run_config.h"

namespace weft {

// Learning rate of step `step` (from 0) of `steps`: linear from zero to lr over the warm-up, then
//   cosine    down to min_lr at the last step
//   wsd       lr, then linear down to min_lr over the last `decay` share of the steps
//   constant  lr
double learning_rate(const OptimizerConfig& config, int64_t step, int64_t steps);

}  // namespace weft
