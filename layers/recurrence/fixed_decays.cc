#include "layers/recurrence/fixed_decays.h"

#include <bit>
#include <cmath>

namespace weft {
namespace {

double slope_of_power(int64_t head, int64_t heads) {
  return std::exp2(-8.0 * static_cast<double>(head + 1) / static_cast<double>(heads));
}

// For a number of heads that is no power of two: the slopes of the next smaller power, then every
// other slope of twice that power.
double slope(int64_t head, int64_t heads) {
  const auto floor = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  return head < floor ? slope_of_power(head, floor) : slope_of_power(2 * (head - floor), 2 * floor);
}

}  // namespace

std::vector<float> retnet_log_decays(int64_t heads) {
  std::vector<float> decays;
  for (int64_t h = 0; h < heads; ++h) {
    decays.push_back(static_cast<float>(std::log1p(-std::exp2(-5.0 - static_cast<double>(h)))));
  }
  return decays;
}

std::vector<float> alibi_log_decays(int64_t heads, double factor) {
  std::vector<float> decays;
  for (int64_t h = 0; h < heads; ++h) {
    decays.push_back(static_cast<float>(-slope(h, heads) * factor));
  }
  return decays;
}

}  // namespace weft
