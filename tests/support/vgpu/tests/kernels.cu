#include "tests/support/vgpu/tests/kernels.h"

#include "kernels/tile/cuda_storage.cuh"

namespace vgpu::test {

using weft::kernels::cuda::block_memory;
using weft::kernels::cuda::dim3;
using weft::kernels::cuda::launch;

constexpr unsigned kAll = 0xffffffffu;
constexpr int kThreads = 128;

__global__ void axpy_kernel(const float* x, float* y, int n, float a) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] += a * x[i];
}

template <int threads>
__global__ void __launch_bounds__(threads) sum_rows_kernel(const float* x, float* out, int width) {
  __shared__ float sums[threads / 32];
  const float* row = x + static_cast<int64_t>(blockIdx.x) * width;
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += threads) sum += row[i];
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(kAll, sum, d);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = 0;
  for (int i = 0; i < threads / 32; ++i) total += sums[i];
  out[blockIdx.x] = total;
}

__global__ void copy_vectors_kernel(const float4* from, float4* to, int vectors) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < vectors) to[i] = from[i];
}

template <Sync sync>
__global__ void rotate_kernel(const float* from, float* to) {
  float* held = &block_memory<float>();
  const unsigned i = threadIdx.x;
  held[i] = 0;
  __syncthreads();
  held[i] = from[i];
  if constexpr (sync == Sync::kBarrier) __syncthreads();
  if constexpr (sync == Sync::kWarp) __syncwarp();
  to[i] = held[(i + 1) % blockDim.x];
}

__global__ void histogram_kernel(const int* x, int n, int* bins, int* sum) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  atomicAdd(bins + x[i], 1);
  atomicAdd(sum, x[i]);
}

__global__ void write_one_kernel(int* to) {
  if (threadIdx.x == 0) *to = static_cast<int>(blockIdx.x);
}

__global__ void read_static_shared_kernel(float* to, bool written) {
  __shared__ float held;
  if (written && threadIdx.x == 0) held = 3;
  __syncthreads();
  to[threadIdx.x] = held;
}

__global__ void read_beyond_shared_kernel(float* to, int index) {
  float* held = &block_memory<float>();
  held[threadIdx.x] = 1;
  __syncthreads();
  to[threadIdx.x] = held[index];
}

__global__ void half_a_barrier_kernel() {
  if (threadIdx.x < 32) __syncthreads();
}

__global__ void count_threads_kernel(int* count) { atomicAdd(count, 1); }

__global__ void double_halves_kernel(uint16_t* x, int n) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < n && x[i] != 0) x[i] = static_cast<uint16_t>(x[i] + 0x80);  // the exponent of bf16
}

__global__ void negate_bytes_kernel(uint8_t* x, int n) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < n) x[i] = static_cast<uint8_t>(~x[i]);
}

__global__ void slow_increment_kernel(int* x, int n, int rounds) {
  const int i = static_cast<int>(threadIdx.x);
  for (int round = 0; round < rounds; ++round) {
    if (i < n) x[i] += 1;
    __syncthreads();
  }
}

namespace {

dim3 blocks_for(int n) { return dim3(static_cast<unsigned>((n + kThreads - 1) / kThreads)); }

}  // namespace

void axpy(const float* x, float* y, int n, float a, Stream stream) {
  launch<axpy_kernel>(blocks_for(n), kThreads, 0, stream, x, y, n, a);
}
void sum_rows(const float* x, float* out, int rows, int width, Stream stream) {
  launch<sum_rows_kernel<kThreads>>(dim3(static_cast<unsigned>(rows)), kThreads, 0, stream, x, out,
                                    width);
}
void copy_vectors(const float* from, float* to, int vectors, Stream stream) {
  launch<copy_vectors_kernel>(blocks_for(vectors), kThreads, 0, stream,
                              reinterpret_cast<const float4*>(from), reinterpret_cast<float4*>(to),
                              vectors);
}
void rotate(const float* from, float* to, int n, Sync sync, Stream stream) {
  const auto threads = static_cast<unsigned>(n);
  const size_t bytes = threads * sizeof(float);
  switch (sync) {
    case Sync::kBarrier:
      return launch<rotate_kernel<Sync::kBarrier>>(dim3(1), threads, bytes, stream, from, to);
    case Sync::kWarp:
      return launch<rotate_kernel<Sync::kWarp>>(dim3(1), threads, bytes, stream, from, to);
    case Sync::kNone:
      return launch<rotate_kernel<Sync::kNone>>(dim3(1), threads, bytes, stream, from, to);
  }
}
void histogram(const int* x, int n, int* bins, int* sum, Stream stream) {
  launch<histogram_kernel>(blocks_for(n), kThreads, 0, stream, x, n, bins, sum);
}
void write_one(int* to, int blocks, Stream stream) {
  launch<write_one_kernel>(dim3(static_cast<unsigned>(blocks)), 32, 0, stream, to);
}
void read_static_shared(float* to, bool written, Stream stream) {
  launch<read_static_shared_kernel>(dim3(1), 32, 0, stream, to, written);
}
void read_beyond_shared(float* to, int index, Stream stream) {
  launch<read_beyond_shared_kernel>(dim3(1), 32, 32 * sizeof(float), stream, to, index);
}
void half_a_barrier(Stream stream) { launch<half_a_barrier_kernel>(dim3(1), 64, 0, stream); }
void count_threads(int* count, int grid_x, int grid_y, int threads, int shared, Stream stream) {
  launch<count_threads_kernel>(dim3(static_cast<unsigned>(grid_x), static_cast<unsigned>(grid_y)),
                               static_cast<unsigned>(threads), static_cast<size_t>(shared), stream,
                               count);
}
void count_threads_by_chevrons([[maybe_unused]] int* count, [[maybe_unused]] int threads,
                               [[maybe_unused]] int shared, [[maybe_unused]] Stream stream) {
#ifdef __CUDACC__
  count_threads_kernel<<<1, threads, shared, stream>>>(count);
#endif
}
void double_halves(uint16_t* x, int n, Stream stream) {
  launch<double_halves_kernel>(dim3(1), static_cast<unsigned>(n), 0, stream, x, n);
}
void negate_bytes(uint8_t* x, int n, Stream stream) {
  launch<negate_bytes_kernel>(dim3(1), static_cast<unsigned>(n), 0, stream, x, n);
}
void slow_increment(int* x, int n, int rounds, Stream stream) {
  launch<slow_increment_kernel>(dim3(1), static_cast<unsigned>(n), 0, stream, x, n, rounds);
}

}  // namespace vgpu::test
