#pragma once

#include "kernels/tile/cpu_storage.h"

// The products of the CPU engine by vectors, accumulated in registers.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

struct Factors {
  const float* a;
  int64_t a_stride;
  const float* b;
  int64_t b_stride;
  int64_t depth;         // in words
  bool partial = false;  // only the first number of the last word counts
};

// acc [height, kVectorColumns], rows `acc_stride` apart, (+)= a b over `depth` words. The left
// factor is read one word at a time, so its transpose costs nothing: a(r, k) lies at
// a[r * stride + k], or at a[k * stride + r] if turned.
template <class Words, int height, bool turned, int64_t acc_stride = kVectorColumns>
[[gnu::noinline]] void multiply(const Factors& f, float* acc, bool fresh) {
  VF sum[height][2];
#pragma GCC unroll 12
  for (int r = 0; r < height; ++r) {
    sum[r][0] = fresh ? VF{} : get_floats(acc + r * acc_stride);
    sum[r][1] = fresh ? VF{} : get_floats(acc + r * acc_stride + kLanes);
  }
  const int64_t row_step = turned ? 1 : f.a_stride, depth_step = turned ? f.a_stride : 1;
  const float* a = f.a;
  const float* b = f.b;
  const auto step = [&](auto word) __attribute__((always_inline)) {
    const VF b0 = word(get_floats(b)), b1 = word(get_floats(b + kLanes));
#pragma GCC unroll 12
    for (int r = 0; r < height; ++r) {
      const VF x = word(splat(a[r * row_step]));
      sum[r][0] = Words::multiply_add(sum[r][0], x, b0);
      sum[r][1] = Words::multiply_add(sum[r][1], x, b1);
    }
    a += depth_step;
    b += f.b_stride;
  };
  const int64_t whole = Words::kPerWord > 1 && f.partial ? f.depth - 1 : f.depth;
  for (int64_t k = 0; k < whole; ++k) step([](VF x) { return x; });
  if constexpr (Words::kPerWord > 1) {
    if (f.partial) step([](VF x) { return Words::first(x); });
  }
#pragma GCC unroll 12
  for (int r = 0; r < height; ++r) {
    put_floats(acc + r * acc_stride, sum[r][0]);
    put_floats(acc + r * acc_stride + kLanes, sum[r][1]);
  }
}

// For any height that vector_rows gives.
template <class Words, bool turned, int64_t acc_stride>
WEFT_INLINE void multiply_rows(const Factors& f, int64_t height, float* acc, bool fresh) {
  if (height == 12) {
    multiply<Words, kLanes == 16 ? 12 : 4, turned, acc_stride>(f, acc, fresh);
  } else if (height == 8) {
    multiply<Words, kLanes == 16 ? 8 : 4, turned, acc_stride>(f, acc, fresh);
  } else if (height == 6) {
    multiply<Words, kLanes == 16 ? 4 : 6, turned, acc_stride>(f, acc, fresh);
  } else {
    multiply<Words, 4, turned, acc_stride>(f, acc, fresh);
  }
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
