#pragma once

#include "kernels/cpu/loops.h"

// Products of matrices that fit a cache, f32, rows one after the other. Include only from
// kernels/cpu/*.cc.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

WEFT_INLINE void add_scaled(float factor, const float* x, float* y, int64_t n) {
  each_vector(n, [&](int64_t i, auto part) {
    store(y + i, load(y + i, part) + factor * load(x + i, part), part);
  });
}
WEFT_INLINE float dot(const float* x, const float* y, int64_t n) {
  return sum_over(n, [&](int64_t i, auto part) { return load(x + i, part) * load(y + i, part); });
}
WEFT_INLINE void clear(float* x, int64_t n) { __builtin_memset(x, 0, static_cast<size_t>(n) * 4); }
WEFT_INLINE void move(const float* x, float* y, int64_t n) {
  __builtin_memcpy(y, x, static_cast<size_t>(n) * 4);
}

// c [m, n] += a [m, k] b [k, n]
[[maybe_unused]] static void multiply(const float* a, const float* b, float* c, int64_t m,
                                      int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      if (a[i * k + j] != 0.0f) add_scaled(a[i * k + j], b + j * n, c + i * n, n);
    }
  }
}
// c [k, n] += a [m, k]^T b [m, n]
[[maybe_unused]] static void multiply_transposed(const float* a, const float* b, float* c,
                                                 int64_t m, int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      if (a[i * k + j] != 0.0f) add_scaled(a[i * k + j], b + i * n, c + j * n, n);
    }
  }
}
// c [m, n] = a [m, k] b [n, k]^T
[[maybe_unused]] static void multiply_by_transposed(const float* a, const float* b, float* c,
                                                    int64_t m, int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) c[i * n + j] = dot(a + i * k, b + j * k, k);
  }
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
