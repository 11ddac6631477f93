#include "launcher/bench_support.h"

#include <cmath>
#include <fstream>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"

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

Quartiles quartiles(std::vector<double> values) {
  WEFT_CHECK(!values.empty(), "quartiles of nothing");
  std::sort(values.begin(), values.end());
  return {quantile(values, 0.5), quantile(values, 0.25), quantile(values, 0.75),
          static_cast<int>(values.size())};
}

nlohmann::json milliseconds(const Quartiles& s) {
  return {{"median", s.median * 1e3}, {"q1", s.q1 * 1e3}, {"q3", s.q3 * 1e3},
          {"repetitions", s.repetitions}};
}

double peak_gflops(Exec& exec, DType precision) {
  constexpr int64_t kSize = 1024;
  const Tensor a = exec.scratch({kSize, kSize}, precision), b = exec.scratch({kSize, kSize}, precision);
  const Tensor c = exec.scratch({kSize, kSize});
  kernels::fill(exec, a, 0.5f);
  kernels::fill(exec, b, 0.25f);
  const kernels::PackedMatrices packed(exec, b, kernels::Transpose::kNo);
  const auto product = [&] { kernels::gemm(exec, a, packed, c); };
  product();
  return 2.0 * std::pow(static_cast<double>(kSize), 3) / measure(5, product).median / 1e9;
}

void write_json(const std::string& path, const nlohmann::json& result) {
  std::ofstream file(path);
  file << result.dump(1) << '\n';
  if (!file.flush()) throw ConfigError("{}: cannot be written", path);
}

}  // namespace weft
