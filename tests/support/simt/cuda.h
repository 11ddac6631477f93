#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#include "tests/support/simt/grid.h"

// The words of CUDA that kernels are written in, for the host's compiler: include this before a
// .cu or .cuh file. Below them stands what kernels/tile/cuda_machine.cuh defines for nvcc:
// launches, shared memory and one function per tensor-core instruction.
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static thread_local  // blocks run one after the other, fibers on one thread

#define threadIdx (::simt::current->thread)
#define blockIdx (::simt::current->block)
#define blockDim (::simt::current->block_size)
#define gridDim (::simt::current->grid_size)

#define SIMT_PLACE(call) (::simt::Place{call, __FILE_NAME__, __LINE__})
#define __syncthreads() ::simt::barrier(SIMT_PLACE("__syncthreads"))
#define __syncwarp() ::simt::sync_warp(SIMT_PLACE("__syncwarp"))
#define __shfl_sync(mask, x, lane) ::simt::shuffle(SIMT_PLACE("__shfl_sync"), mask, x, lane)
#define __shfl_xor_sync(mask, x, bits) \
  ::simt::shuffle(SIMT_PLACE("__shfl_xor_sync"), mask, x, ::simt::current->lane ^ (bits))
#define __shfl_up_sync(mask, x, by) \
  ::simt::shuffle(SIMT_PLACE("__shfl_up_sync"), mask, x, ::simt::lane_below(by))
#define __shfl_down_sync(mask, x, by) \
  ::simt::shuffle(SIMT_PLACE("__shfl_down_sync"), mask, x, ::simt::lane_above(by))

struct CUstream_st;

namespace simt {

inline unsigned lane_below(unsigned by) {
  return current->lane < by ? current->lane : current->lane - by;
}
inline unsigned lane_above(unsigned by) {
  return current->lane + by >= kWarp ? current->lane : current->lane + by;
}

inline void sync_warp(const Place& place) {
  WarpCall call{0xffffffffu, place, [](WarpCall* const*) {}, {}, nullptr};
  warp_call(call);
}

// Every lane gets the value that lane `from`, which must take part, brought along.
template <class T>
T shuffle(const Place& place, unsigned mask, T value, unsigned from) {
  const auto take = [](WarpCall* const* lanes) {
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if (lanes[lane] == nullptr) continue;
      const WarpCall* source = lanes[*static_cast<const unsigned*>(lanes[lane]->in[1]) % kWarp];
      if (source == nullptr) throw Error("a shuffle reads a lane that does not take part in it");
      *static_cast<T*>(lanes[lane]->out) = *static_cast<const T*>(source->in[0]);
    }
  };
  T result{};
  WarpCall call{mask, place, take, {&value, &from}, &result};
  warp_call(call);
  return result;
}

template <class... P, class... A>
void launch(const Shape& shape, void (*kernel)(P...), A&&... arguments) {
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
  } call{kernel, {std::forward<A>(arguments)...}};
  const auto run = [](void* c) {
    auto* self = static_cast<Call*>(c);
    std::apply(self->kernel, self->arguments);
  };
  run_grid(shape, run, &call);
}

}  // namespace simt

// Fibers change places only where they wait, so plain reads and writes are atomic.
template <class T>
T atomicAdd(T* to, T x) {
  return std::exchange(*to, *to + x);
}
template <class T>
T atomicMax(T* to, T x) {
  return std::exchange(*to, *to < x ? x : *to);
}
template <class T>
T atomicCAS(T* to, T expected, T x) {
  return std::exchange(*to, *to == expected ? x : *to);
}

namespace weft::kernels::cuda {

using dim3 = simt::Index;
using Stream = CUstream_st*;  // launches are executed at once

template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, unsigned threads, size_t shared_bytes, Stream,
            A&&... arguments) {
  simt::launch({grid, threads, shared_bytes}, kernel, std::forward<A>(arguments)...);
}

template <class T>
T& block_memory() {
  return *reinterpret_cast<T*>(simt::current->shared);
}

// See kernels/tile/cuda_machine.cuh for what they do.
uint32_t narrow_pair(float low, float high);
float to_tf32(float x);
void load_matrices(uint32_t (&to)[4], const void* row);
void load_matrices_turned(uint32_t (&to)[4], const void* row);
void multiply_add_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t* b);
void multiply_add_tf32(float (&d)[4], const float (&a)[4], const float* b);

}  // namespace weft::kernels::cuda
