#include "kernels/rows/cpu/head_pool.h"

#include "kernels/cpu/tasks.h"

namespace weft::kernels::cpu {
namespace {

float read(const void* data, DType type, int64_t at) {
  return type == DType::kF32 ? static_cast<const float*>(data)[at]
                             : to_float(static_cast<const bf16*>(data)[at]);
}

// work(token, channel of z, first channel of x, channels of x)
template <class Work>
void each_bin(Exec& exec, const HeadPool& p, ConstView x, Work work) {
  const int64_t width = x.width() / p.sources, group = p.heads / p.sources;
  for_blocks(exec, row_blocks(x.rows(), x.width()), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t h = 0; h < p.heads; ++h) {
        for (int64_t i = 0; i < p.bins; ++i) {
          const int64_t from = i * width / p.bins, to = ((i + 1) * width + p.bins - 1) / p.bins;
          work(t, h * p.bins + i, h / group * width + from, to - from);
        }
      }
    }
  });
}

}  // namespace

void head_pool_forward(Exec& exec, const HeadPool& pool, ConstView x, View z) {
  float* out = host<float>(z);
  each_bin(exec, pool, x, [&](int64_t t, int64_t channel, int64_t from, int64_t count) {
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += read(x.data, x.dtype, t * x.row_stride + from + i);
    out[t * z.row_stride + channel] = pool.factor * sum / static_cast<float>(count);
  });
}

void head_pool_backward(Exec& exec, const HeadPool& pool, ConstView dz, View dx) {
  const float* in = host<float>(dz);
  each_bin(exec, pool, dx, [&](int64_t t, int64_t channel, int64_t from, int64_t count) {
    const float d = pool.factor * in[t * dz.row_stride + channel] / static_cast<float>(count);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = t * dx.row_stride + from + i;
      if (dx.dtype == DType::kF32) {
        static_cast<float*>(dx.data)[at] += d;
      } else {
        bf16& x = static_cast<bf16*>(dx.data)[at];
        x = to_bf16(to_float(x) + d);
      }
    }
  });
}

}  // namespace weft::kernels::cpu
