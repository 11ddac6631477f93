#include "launcher/bench_support.h"

#include <time.h>

#include <cmath>
#include <fstream>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/gemm_driver.h"

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

double peak_gflops(ThreadPool& threads, DType precision) {
  constexpr int64_t kSize = 1024;
  Ledger ledger;
  Pool pool(ledger);
  Exec exec{threads, pool, chosen_isa(), {}};
  const Tensor a = exec.scratch({kSize, kSize}, precision), b = exec.scratch({kSize, kSize}, precision);
  const Tensor c = exec.scratch({kSize, kSize});
  kernels::fill(exec, a, 0.5f);
  kernels::fill(exec, b, 0.25f);
  const kernels::PackedMatrices packed(exec, b, kernels::Transpose::kNo);
  const auto product = [&] { kernels::gemm(exec, a, packed, c); };
  product();
  return 2.0 * std::pow(static_cast<double>(kSize), 3) / measure(5, product).median / 1e9;
}

double probe_drift(double before, double after) {
  return std::abs(before - after) / std::max(before, after);
}

double register_peak_gflops(Exec& exec, DType precision, Clock clock) {
  const kernels::GemmKernels& kernels = kernels::gemm_kernels(exec.isa, precision);
  constexpr double kSeconds = 0.02;  // of one loop: long against the start of the threads
  int64_t steps = 1000;
  while (seconds_of([&] { kernels.peak_loop(steps); }) < kSeconds) steps *= 2;
  const double done = kernels.peak_loop(steps) * exec.threads.size();
  const auto all = [&] {
    exec.threads.run(exec.threads.size(), [&](int64_t) { kernels.peak_loop(steps); });
  };
  return done / measure(5, all, clock).median / 1e9;
}

void Probes::begin() {
  if (registers_ == 0) registers_ = register_peak_gflops(exec_, precision_);
  before_ = after_ > 0 ? after_ : peak_gflops(exec_.threads, precision_);
}

void Probes::finish() { after_ = peak_gflops(exec_.threads, precision_); }

const char* Probes::warning() const {
  return noisy() ? "  NOISY: the probes before and after differ by more than 10 %" : "";
}

nlohmann::json Probes::json() const {
  return {{"peak_gflops_before", before_},
          {"peak_gflops_after", after_},
          {"register_peak_gflops", registers_},
          {"noisy", noisy()}};
}

void write_json(const std::string& path, const nlohmann::json& result) {
  std::ofstream file(path);
  file << result.dump(1) << '\n';
  if (!file.flush()) throw ConfigError("{}: cannot be written", path);
}

}  // namespace weft
