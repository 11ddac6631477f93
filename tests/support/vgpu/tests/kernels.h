#pragma once

#include <cstdint>

struct CUstream_st;

// Kernels of the virtual GPU's own tests, and how to launch them. What some of them do wrong is
// what the tests are about.
namespace vgpu::test {

using Stream = CUstream_st*;

// y += a x
void axpy(const float* x, float* y, int n, float a, Stream stream);
// out[row] = sum of a row of `width` numbers: warps by shuffles, then shared memory. A block per
// row.
void sum_rows(const float* x, float* out, int rows, int width, Stream stream);
// Copies in units of 16 bytes.
void copy_vectors(const float* from, float* to, int vectors, Stream stream);
// to[i] = from[(i + 1) % n] by way of shared memory, one block of n threads.
enum class Sync { kBarrier, kWarp, kNone };
void rotate(const float* from, float* to, int n, Sync sync, Stream stream);
// bins[x[i]] += 1, and *sum += x[i], by many blocks.
void histogram(const int* x, int n, int* bins, int* sum, Stream stream);
// *to = some thread's number: every block writes it.
void write_one(int* to, int blocks, Stream stream);
// Reads a static __shared__ variable, which thread 0 has written, or no thread.
void read_static_shared(float* to, bool written, Stream stream);
// Reads shared memory at an index beyond what the launch asked for.
void read_beyond_shared(float* to, int index, Stream stream);
// A barrier that half of the threads reach.
void half_a_barrier(Stream stream);
// As many blocks, threads and bytes of shared memory as asked for; each thread adds 1 to *count.
void count_threads(int* count, int grid_x, int grid_y, int threads, int shared, Stream stream);
// Launches by <<<>>>, which does not request more than 48 KB of shared memory.
void count_threads_by_chevrons(int* count, int threads, int shared, Stream stream);
// bf16 in place, neighbours in one word by two threads: x[i] = 2 x[i].
void double_halves(uint16_t* x, int n, Stream stream);
// In-place update of bytes by one thread each.
void negate_bytes(uint8_t* x, int n, Stream stream);
// x[i] += 1 for `rounds` rounds with barriers between.
void slow_increment(int* x, int n, int rounds, Stream stream);

}  // namespace vgpu::test
