#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "tests/support/simt/grid.h"
#include "tests/support/simt/words.h"
#ifdef WEFT_TWIN
#include "tests/support/vgpu/twin/registry.h"
#endif

// Include this before a .cu or .cuh file, to compile it with the host's compiler. Beside the words
// of CUDA it has what kernels/cuda/launch.cuh and kernels/tile/cuda_machine.cuh define for nvcc.
struct CUstream_st;

namespace simt {

// One kernel with its arguments, called by every thread.
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

namespace weft::kernels::cuda {

using dim3 = simt::Index;
using Stream = CUstream_st*;

#ifdef WEFT_TWIN
// The device process calls kernels of the twin; the twin itself launches none.
template <auto kernel, class... A>
void launch(dim3, unsigned, size_t, Stream, A&&...) {
  (void)vgpu::registered<kernel>;
}
#else
// Launches are executed at once.
template <auto kernel, class... A>
void launch(dim3 grid, unsigned threads, size_t shared_bytes, Stream, A&&... arguments) {
  simt::launch({grid, threads, shared_bytes}, kernel, std::forward<A>(arguments)...);
}
#endif

template <class T>
T& block_memory() {
  return *reinterpret_cast<T*>(simt::shared_memory());
}

// See kernels/tile/cuda_machine.cuh for what they do.
uint32_t narrow_pair(float low, float high);
float to_tf32(float x);
void load_matrices(uint32_t (&to)[4], const void* row);
void load_matrices_turned(uint32_t (&to)[4], const void* row);
void multiply_add_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t* b);
void multiply_add_tf32(float (&d)[4], const float (&a)[4], const float* b);
void multiply_add_pair(float (&left)[4], float (&right)[4], const uint32_t (&a)[4],
                       const uint32_t (&b)[4]);
void multiply_add_pair(float (&left)[4], float (&right)[4], const float (&a)[4],
                       const float (&a_low)[4], const float (&b)[4], const float (&b_low)[4]);

}  // namespace weft::kernels::cuda
