#include "launcher/bench/bench_slope.h"

#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "core/base/error.h"
#include "launcher/app/measure.h"

namespace weft {
namespace {

// Student's t for a two-sided 95 % interval, by degrees of freedom.
double student(size_t freedom) {
  constexpr std::array<double, 10> kTable = {12.706, 4.303, 3.182, 2.776, 2.571,
                                             2.447,  2.365, 2.306, 2.262, 2.228};
  if (freedom == 0) return std::numeric_limits<double>::infinity();
  return freedom <= kTable.size() ? kTable[freedom - 1] : 1.96 + 2.4 / static_cast<double>(freedom);
}

}  // namespace

Slope slope_of(const std::vector<Timing>& timings) {
  std::map<double, std::vector<double>> by_length;
  for (const Timing& t : timings) by_length[t.length].push_back(t.seconds);
  WEFT_CHECK(by_length.size() >= 2, "a slope needs two lengths, not {}", by_length.size());
  std::vector<std::pair<double, double>> points;
  for (const auto& [length, seconds] : by_length) {
    points.emplace_back(std::log(length), std::log(quartiles(seconds).median));
  }
  const auto n = static_cast<double>(points.size());
  double mx = 0, my = 0, xx = 0, xy = 0;
  for (const auto& [x, y] : points) mx += x / n, my += y / n;
  for (const auto& [x, y] : points) xx += (x - mx) * (x - mx), xy += (x - mx) * (y - my);
  const double slope = xy / xx;
  double squares = 0;
  for (const auto& [x, y] : points) squares += std::pow(y - my - slope * (x - mx), 2);
  if (points.size() == 2) return {slope, student(0)};
  return {slope, student(points.size() - 2) * std::sqrt(squares / (n - 2) / xx)};
}

}  // namespace weft
