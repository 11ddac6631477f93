#pragma once

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/exec.h"

// What every benchmark shares: repeated timings, ratios, the machine's own peak, result files.
namespace weft {

struct Quartiles {
  double median = 0, q1 = 0, q3 = 0;
  int repetitions = 0;
};
Quartiles quartiles(std::vector<double> values);
nlohmann::json milliseconds(const Quartiles& seconds);  // {"median", "q1", "q3", "repetitions"}

template <class Work>
double seconds_of(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Wall-clock seconds of `repetitions` calls.
template <class Work>
Quartiles measure(int repetitions, Work&& work) {
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) seconds.push_back(seconds_of(work));
  return quartiles(std::move(seconds));
}

// Time of b over time of a (above 1: a is faster), in pairs A-B-B-A so that slow drifts of a shared machine
// fall on both alike.
template <class A, class B>
Quartiles ratio(int pairs, A&& a, B&& b) {
  std::vector<double> ratios;
  for (int i = 0; i < pairs; ++i) {
    const double a1 = seconds_of(a), b1 = seconds_of(b), b2 = seconds_of(b), a2 = seconds_of(a);
    ratios.push_back((b1 + b2) / (a1 + a2));
  }
  return quartiles(std::move(ratios));
}

// GFLOP/s of our own 1024-cubed GEMM in this precision, on the threads of `exec`: the yardstick taken before
// and after every block of measurements.
double peak_gflops(Exec& exec, DType precision);

void write_json(const std::string& path, const nlohmann::json& result);  // ConfigError if it cannot

}  // namespace weft
