#include "launcher/app/peak_probes.h"

#include <cmath>

#include "kernels/matrix/cpu/gemm_driver.h"
#include "kernels/matrix/gemm.h"
#include "kernels/rows/elementwise.h"

namespace weft {

double peak_gflops(ThreadPool& threads, DType precision) {
  constexpr int64_t kSize = 1024;
  Ledger ledger;
  Pool pool(ledger);
  Exec exec{threads, pool, chosen_isa()};
  const Tensor a = exec.scratch({kSize, kSize}, precision),
               b = exec.scratch({kSize, kSize}, precision);
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
  constexpr double kSeconds = 0.02;  // per loop: long compared with starting the threads
  int64_t steps = 1000;
  while (seconds_of([&] { kernels.peak_loop(steps); }) < kSeconds) steps *= 2;
  const double done = kernels.peak_loop(steps) * exec.threads.size();
  const auto all = [&] {
    exec.threads.run(exec.threads.size(), [&](int64_t) { kernels.peak_loop(steps); });
  };
  return done / measure(5, all, clock).median / 1e9;
}

void PeakProbes::begin() {
  if (registers_ == 0) registers_ = register_peak_gflops(exec_, precision_);
  before_ = after_ > 0 ? after_ : peak_gflops(exec_.threads, precision_);
}

void PeakProbes::finish() { after_ = peak_gflops(exec_.threads, precision_); }

const char* PeakProbes::warning() const {
  return noisy() ? "  NOISY: the probes before and after differ by more than 10 %" : "";
}

nlohmann::json PeakProbes::json() const {
  return {{"peak_gflops_before", before_},
          {"peak_gflops_after", after_},
          {"register_peak_gflops", registers_},
          {"noisy", noisy()}};
}

}  // namespace weft
