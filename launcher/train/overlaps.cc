#include "launcher/train/overlaps.h"

#include <sstream>

#include "core/base/error.h"

namespace weft {

Overlaps overlaps_of(const ParallelConfig& config, const std::string& only) {
  if (!config.overlap || only.empty()) return {config.overlap, config.overlap, config.overlap};
  Overlaps on;
  std::istringstream names(only);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == "sums")
      on.sums = true;
    else if (name == "weights")
      on.weights = true;
    else if (name == "rows")
      on.rows = true;
    else
      throw ConfigError("--overlap {}: '{}' is none of sums, weights, rows", only, name);
  }
  return on;
}

}  // namespace weft
