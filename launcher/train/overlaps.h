#pragma once

#include "core/config/run_config.h"

namespace weft {

// What travels while ranks compute, where parallel.overlap is on. WEFT_OVERLAP=sums,weights leaves
// only those on that it names: to measure each by itself (tests/bench/overlap).
struct Overlaps {
  bool sums = false;     // of gradients, during the step's last backward
  bool weights = false;  // new ones, during the next forward
  bool rows = false;     // of experts and tensor ranks, inside layers
};

Overlaps overlaps_of(const ParallelConfig& config);

}  // namespace weft
