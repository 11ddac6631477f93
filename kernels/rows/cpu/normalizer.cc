#include "kernels/rows/cpu/normalizer.h"

#include <algorithm>

#include "core/host_access.h"

namespace weft::kernels::cpu {
namespace {

constexpr int64_t kRows = 64;  // tokens per task

float read(ConstView x, int64_t row, int64_t column) {
  const int64_t at = row * x.row_stride + column;
  return x.dtype == DType::kF32 ? static_cast<const float*>(x.data)[at]
                                : to_float(static_cast<const bf16*>(x.data)[at]);
}

void write(View x, int64_t row, int64_t column, float value) {
  const int64_t at = row * x.row_stride + column;
  if (x.dtype == DType::kF32)
    static_cast<float*>(x.data)[at] = value;
  else
    static_cast<bf16*>(x.data)[at] = to_bf16(value);
}

// work(token, head) for all tokens and heads
template <class Work>
void each_head(Exec& exec, int64_t heads, int64_t tokens, Work work) {
  exec.threads.run((tokens + kRows - 1) / kRows, [&](int64_t task) {
    const int64_t end = std::min(tokens, (task + 1) * kRows);
    for (int64_t t = task * kRows; t < end; ++t) {
      for (int64_t h = 0; h < heads; ++h) work(t, h);
    }
  });
}

}  // namespace

void append_ones(Exec& exec, int64_t heads, ConstView x, View wide) {
  const int64_t width = x.width() / heads;
  each_head(exec, heads, wide.rows(), [&](int64_t t, int64_t h) {
    for (int64_t i = 0; i < width; ++i)
      write(wide, t, h * (width + 1) + i, read(x, t, h * width + i));
    write(wide, t, h * (width + 1) + width, 1.0f);
  });
}

void drop_last_channel(Exec& exec, int64_t heads, ConstView wide, View x) {
  const int64_t width = x.width() / heads;
  each_head(exec, heads, wide.rows(), [&](int64_t t, int64_t h) {
    for (int64_t i = 0; i < width; ++i)
      write(x, t, h * width + i, read(wide, t, h * (width + 1) + i));
  });
}

void divide_by_last_channel(Exec& exec, int64_t heads, ConstView wide, View out, float epsilon) {
  const int64_t width = out.width() / heads;
  each_head(exec, heads, wide.rows(), [&](int64_t t, int64_t h) {
    const int64_t from = h * (width + 1);
    const float inverse = 1.0f / (read(wide, t, from + width) + epsilon);
    for (int64_t i = 0; i < width; ++i)
      write(out, t, h * width + i, read(wide, t, from + i) * inverse);
  });
}

void divide_by_last_channel_backward(Exec& exec, int64_t heads, ConstView wide, ConstView d_out,
                                     View d_wide, float epsilon) {
  const int64_t width = d_out.width() / heads;
  each_head(exec, heads, wide.rows(), [&](int64_t t, int64_t h) {
    const int64_t from = h * (width + 1);
    const float inverse = 1.0f / (read(wide, t, from + width) + epsilon);
    float dot = 0;
    for (int64_t i = 0; i < width; ++i) {
      const float d = read(d_out, t, h * width + i);
      dot += d * read(wide, t, from + i);
      write(d_wide, t, from + i, d * inverse);
    }
    write(d_wide, t, from + width, -dot * inverse * inverse);
  });
}

}  // namespace weft::kernels::cpu
