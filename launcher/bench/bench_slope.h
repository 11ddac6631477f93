#pragma once

#include <vector>

namespace weft {

struct Timing {
  double length, seconds;
};

// The exponent b of seconds = a length^b by least squares on logarithms, and the half width of its
// 95 % confidence interval. Repetitions at one length are not independent on a shared machine, so
// the points are the medians, one per length.
struct Slope {
  double value = 0, half_width = 0;
};
Slope slope_of(const std::vector<Timing>& timings);

}  // namespace weft
