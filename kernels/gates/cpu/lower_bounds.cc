#include "kernels/gates/cpu/lower_bounds.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/host_access.h"

namespace weft::kernels::cpu {
namespace {

constexpr int64_t kBoundColumns = 256;  // of a task

// each(column, softmax over layers of that column)
template <class Each>
void each_column(Exec& exec, ConstView raw, Each each) {
  const int64_t layers = raw.rows(), width = raw.width();
  exec.threads.run((width + kBoundColumns - 1) / kBoundColumns, [&](int64_t task) {
    std::vector<double> p(static_cast<size_t>(layers));
    for (int64_t c = task * kBoundColumns; c < std::min(width, (task + 1) * kBoundColumns); ++c) {
      const float* column = host<float>(raw) + c;
      double most = column[0], total = 0;
      for (int64_t l = 1; l < layers; ++l) {
        most = std::max(most, static_cast<double>(column[l * raw.row_stride]));
      }
      for (int64_t l = 0; l < layers; ++l) {
        p[static_cast<size_t>(l)] = std::exp(column[l * raw.row_stride] - most);
        total += p[static_cast<size_t>(l)];
      }
      for (double& share : p) share /= total;
      each(c, p);
    }
  });
}

double bound_of(int64_t layer, const std::vector<double>& p) {
  double sum = 0;
  for (int64_t l = 1; l <= layer; ++l) sum += p[static_cast<size_t>(l)];
  return sum;
}

}  // namespace

void lower_bound_forward(Exec& exec, int64_t layer, ConstView raw, View bound) {
  float* to = host<float>(bound);
  each_column(exec, raw, [&](int64_t c, const std::vector<double>& p) {
    to[c] = static_cast<float>(bound_of(layer, p));
  });
}

void lower_bound_backward(Exec& exec, int64_t layer, ConstView raw, ConstView d_bound, View d_raw) {
  const float* d = host<float>(d_bound);
  float* to = host<float>(d_raw);
  each_column(exec, raw, [&](int64_t c, const std::vector<double>& p) {
    const double bound = bound_of(layer, p);
    for (int64_t l = 0; l < raw.rows(); ++l) {
      const double counted = l >= 1 && l <= layer ? 1.0 : 0.0;
      to[l * d_raw.row_stride + c] +=
          static_cast<float>(d[c] * p[static_cast<size_t>(l)] * (counted - bound));
    }
  });
}

}  // namespace weft::kernels::cpu
