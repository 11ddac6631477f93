#pragma once

#include <cstdint>
#include <cstdlib>

namespace weft {

// The divisor of `n` nearest to `wish`, the smaller one of two: what messages propose.
inline int64_t nearest_divisor(int64_t n, int64_t wish) {
  int64_t best = 1;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0 && std::abs(d - wish) < std::abs(best - wish)) best = d;
  }
  return best;
}

}  // namespace weft
