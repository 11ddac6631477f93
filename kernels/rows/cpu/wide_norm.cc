#include "kernels/rows/cpu/wide_norm.h"

#include <cmath>

#include "kernels/cpu/tasks.h"

namespace weft::kernels::cpu {
namespace {

// each(row, group, its first channel, one past its last)
template <class Each>
void each_group(Exec& exec, ConstView x, int64_t groups, Each each) {
  const int64_t width = x.width() / groups;
  for_blocks(exec, row_blocks(x.rows(), x.width()), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t g = 0; g < groups; ++g) each(r, g, g * width, (g + 1) * width);
    }
  });
}

template <class V>
auto row_of(const V& v, int64_t r) {
  return host<float>(v) + r * v.row_stride;
}

}  // namespace

void wide_norm_squares(Exec& exec, ConstView x, int64_t groups, View squares) {
  each_group(exec, x, groups, [&](int64_t r, int64_t g, int64_t begin, int64_t end) {
    const float* from = row_of(x, r);
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) sum += double{from[i]} * from[i];
    row_of(squares, r)[g] = static_cast<float>(sum);
  });
}

void wide_norm_inverse(Exec& exec, ConstView squares, int64_t width, float epsilon, View inv_rms) {
  each_group(exec, squares, squares.width(), [&](int64_t r, int64_t g, int64_t, int64_t) {
    row_of(inv_rms, r)[g] =
        1.0f / std::sqrt(row_of(squares, r)[g] / static_cast<float>(width) + epsilon);
  });
}

void wide_norm_scale(Exec& exec, ConstView x, ConstView inv_rms, ConstView weight, View y) {
  const float* w = host<float>(weight);
  each_group(exec, x, inv_rms.width(), [&](int64_t r, int64_t g, int64_t begin, int64_t end) {
    const float* from = row_of(x, r);
    const float scale = row_of(inv_rms, r)[g];
    float* to = row_of(y, r);
    for (int64_t i = begin; i < end; ++i) to[i] = from[i] * scale * w[i];
  });
}

void wide_norm_products(Exec& exec, ConstView dy, ConstView x, ConstView inv_rms, ConstView weight,
                        View d_weight, View products) {
  const float* w = host<float>(weight);
  const int64_t groups = inv_rms.width(), width = x.width() / groups;
  each_group(exec, x, groups, [&](int64_t r, int64_t g, int64_t begin, int64_t end) {
    const float *from = row_of(x, r), *d = row_of(dy, r);
    const float scale = row_of(inv_rms, r)[g];
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) sum += double{d[i]} * w[i] * (from[i] * scale);
    row_of(products, r)[g] = static_cast<float>(sum);
  });
  // A task has some channels and walks all rows: the same sums for any number of threads.
  constexpr int64_t kChannels = 64;
  exec.threads.run((x.width() + kChannels - 1) / kChannels, [&](int64_t task) {
    const int64_t begin = task * kChannels, end = std::min(x.width(), begin + kChannels);
    float* sum = host<float>(d_weight);
    for (int64_t r = 0; r < x.rows(); ++r) {
      const float *from = row_of(x, r), *d = row_of(dy, r), *scale = row_of(inv_rms, r);
      for (int64_t i = begin; i < end; ++i) sum[i] += d[i] * (from[i] * scale[i / width]);
    }
  });
}

void wide_norm_backward(Exec& exec, const WideNormBackward& c) {
  const float* w = host<float>(c.weight);
  each_group(exec, c.x, c.inv_rms.width(), [&](int64_t r, int64_t g, int64_t begin, int64_t end) {
    const float *x = row_of(c.x, r), *dy = row_of(c.dy, r);
    const float scale = row_of(c.inv_rms, r)[g], mean = row_of(c.mean, r)[g];
    float* dx = row_of(c.dx, r);
    for (int64_t i = begin; i < end; ++i) dx[i] = (dy[i] * w[i] - x[i] * scale * mean) * scale;
  });
}

}  // namespace weft::kernels::cpu
