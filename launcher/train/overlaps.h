#pragma once

#include <string>

#include "core/config/run_config.h"

namespace weft {

// Communication that overlaps computation where parallel.overlap is on.
struct Overlaps {
  bool sums = false;     // of gradients, during the step's last backward
  bool weights = false;  // new ones, during the next forward
  bool rows = false;     // of experts and tensor ranks, inside layers
};

// `only`: names of members, separated by commas; the others are off. Measures each by itself
// (`weft bench step --overlap`, tests/bench/overlap). Empty: all.
Overlaps overlaps_of(const ParallelConfig& config, const std::string& only = "");

}  // namespace weft
