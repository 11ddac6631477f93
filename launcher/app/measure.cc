#include "launcher/app/measure.h"

#include <time.h>

#include <fstream>

namespace weft {
namespace {

// Linear interpolation between the two nearest values of a sorted list.
double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

}  // namespace

double now(Clock clock) {
  timespec t{};
  clock_gettime(clock == Clock::kWall ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

Quartiles quartiles(std::vector<double> values) {
  WEFT_CHECK(!values.empty(), "quartiles of nothing");
  std::sort(values.begin(), values.end());
  return {quantile(values, 0.5), quantile(values, 0.25), quantile(values, 0.75),
          static_cast<int>(values.size())};
}

nlohmann::json to_json(const Quartiles& q) {
  return {{"median", q.median}, {"q1", q.q1}, {"q3", q.q3}, {"repetitions", q.repetitions}};
}

nlohmann::json milliseconds(const Quartiles& s) {
  return to_json({s.median * 1e3, s.q1 * 1e3, s.q3 * 1e3, s.repetitions});
}

void write_json(const std::string& path, const nlohmann::json& result) {
  std::ofstream file(path);
  file << result.dump(1) << '\n';
  if (!file.flush()) throw ConfigError("{}: cannot be written", path);
}

}  // namespace weft
