#pragma once

#include <nlohmann/json.hpp>

#include "core/memory/exec.h"
#include "launcher/app/measure.h"

// Measured peak of this machine, the reference of training (MFU) and benchmarks.
namespace weft {

// GFLOP/s of our own 1024-cubed GEMM in this precision on these threads, in separate memory: the
// reference measured before and after every block of measurements.
double peak_gflops(ThreadPool& threads, DType precision);

// Largest relative difference of the two probes around a measurement; above it the machine was
// disturbed and shares of the peak are not reliable.
inline constexpr double kNoisy = 0.1;
double probe_drift(double before, double after);

// GFLOP/s of multiply-adds (or tile products) on registers alone, which no kernel exceeds.
double register_peak_gflops(Exec& exec, DType precision, Clock clock = Clock::kWall);

// The peaks around a block of measurements, or around each of several in a row: the probe after one
// is the probe before the next.
class PeakProbes {
 public:
  PeakProbes(Exec& exec, DType precision) : exec_(exec), precision_(precision) {}
  void begin();   // before the first measurement of a block
  void finish();  // after the last one

  double gemm() const { return 0.5 * (before_ + after_); }
  double registers() const { return registers_; }
  bool noisy() const { return probe_drift(before_, after_) > kNoisy; }
  const char* warning() const;  // empty, or a remark to append to a line
  nlohmann::json json() const;  // peak_gflops_before, _after, register_peak_gflops, noisy

 private:
  Exec& exec_;
  DType precision_;
  double registers_ = 0, before_ = 0, after_ = 0;
};

}  // namespace weft
