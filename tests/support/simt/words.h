#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/support/simt/atomics.h"
#include "tests/support/simt/grid.h"
#include "tests/support/simt/vectors.h"
#include "tests/support/simt/warp.h"

// The words of CUDA that kernels are written in, for the host's compiler.
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
#define __shared__ static thread_local  // blocks run one after the other, fibers on one thread

#define threadIdx (::simt::thread_index())
#define blockIdx (::simt::block_index())
#define blockDim (::simt::block_size())
#define gridDim (::simt::grid_size())
#define warpSize 32

#define SIMT_PLACE(call) (::simt::Place{call, __FILE_NAME__, __LINE__})
#define __syncthreads() ::simt::barrier(SIMT_PLACE("__syncthreads"))
#define __syncwarp(...) ::simt::sync_warp(SIMT_PLACE("__syncwarp") __VA_OPT__(, ) __VA_ARGS__)
#define __shfl_sync(...) \
  ::simt::shuffle<::simt::Lane::kNamed>(SIMT_PLACE("__shfl_sync"), __VA_ARGS__)
#define __shfl_xor_sync(...) \
  ::simt::shuffle<::simt::Lane::kXor>(SIMT_PLACE("__shfl_xor_sync"), __VA_ARGS__)
#define __shfl_up_sync(...) \
  ::simt::shuffle<::simt::Lane::kBelow>(SIMT_PLACE("__shfl_up_sync"), __VA_ARGS__)
#define __shfl_down_sync(...) \
  ::simt::shuffle<::simt::Lane::kAbove>(SIMT_PLACE("__shfl_down_sync"), __VA_ARGS__)
#define __ballot_sync(mask, x) ::simt::ballot(SIMT_PLACE("__ballot_sync"), mask, x)
#define __any_sync(mask, x) (::simt::ballot(SIMT_PLACE("__any_sync"), mask, x) != 0)
#define __all_sync(mask, x) (::simt::ballot(SIMT_PLACE("__all_sync"), mask, x) == (mask))
#define __reduce_add_sync(mask, x)                         \
  ::simt::reduce(SIMT_PLACE("__reduce_add_sync"), mask, x, \
                 [](auto a, auto b) { return static_cast<decltype(a)>(a + b); })
#define __reduce_min_sync(mask, x)                         \
  ::simt::reduce(SIMT_PLACE("__reduce_min_sync"), mask, x, \
                 [](auto a, auto b) { return b < a ? b : a; })
#define __reduce_max_sync(mask, x)                         \
  ::simt::reduce(SIMT_PLACE("__reduce_max_sync"), mask, x, \
                 [](auto a, auto b) { return a < b ? b : a; })

// Blocks run one after the other: every write is visible when the next one begins.
inline void __threadfence() {}
inline void __threadfence_block() {}

template <class T>
T __ldg(const T* from) {
  return *from;
}
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
