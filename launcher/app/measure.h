#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/error.h"

// Repeated timings, ratios, result files.
namespace weft {

struct Quartiles {
  double median = 0, q1 = 0, q3 = 0;
  int repetitions = 0;
};
Quartiles quartiles(std::vector<double> values);
nlohmann::json to_json(const Quartiles& values);        // {"median", "q1", "q3", "repetitions"}
nlohmann::json milliseconds(const Quartiles& seconds);  // like to_json, times 1000

// Wall time, or processor time of this process, which on one thread excludes the time that a busy
// machine spends on other processes.
enum class Clock : uint8_t { kWall, kProcessor };
double now(Clock clock);  // seconds

template <class Work>
double seconds_of(Work&& work, Clock clock = Clock::kWall) {
  const double start = now(clock);
  work();
  return now(clock) - start;
}

// Seconds of `repetitions` calls.
template <class Work>
Quartiles measure(int repetitions, Work&& work, Clock clock = Clock::kWall) {
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) seconds.push_back(seconds_of(work, clock));
  return quartiles(std::move(seconds));
}

// Time of b over time of a (above 1: a is faster), in pairs A-B-B-A so that slow drifts of a shared
// machine affect both equally.
template <class A, class B>
Quartiles ratio(int pairs, A&& a, B&& b, Clock clock = Clock::kWall) {
  std::vector<double> ratios;
  for (int i = 0; i < pairs; ++i) {
    const double a1 = seconds_of(a, clock), b1 = seconds_of(b, clock);
    const double b2 = seconds_of(b, clock), a2 = seconds_of(a, clock);
    ratios.push_back((b1 + b2) / (a1 + a2));
  }
  return quartiles(std::move(ratios));
}

void write_json(const std::string& path, const nlohmann::json& result);  // ConfigError if it cannot

}  // namespace weft
