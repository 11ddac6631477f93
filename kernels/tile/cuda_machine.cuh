#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.cuh"

// Everything of the CUDA engine that only nvcc understands: launches, shared memory, and one
// function per instruction that C++ has no word for. Where there is no nvcc, tests/support/simt
// defines the same names, and all other files stay as they are.
namespace weft::kernels::cuda {

// The shared memory of the block, seen as a T.
template <class T>
__device__ __forceinline__ T& block_memory() {
  extern __shared__ __align__(16) unsigned char bytes[];
  return *reinterpret_cast<T*>(bytes);
}

// Two numbers as bf16, rounded to nearest: the lower half is `low`.
__device__ __forceinline__ uint32_t narrow_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// x with the 10 explicit bits of a tensor-core operand, rounded to nearest.
__device__ __forceinline__ float to_tf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}

// Four 8 x 8 matrices of 16-bit numbers from shared memory, by the warp together: lane 8 m + r
// names row r of matrix m, and gets entries (g, 2t), (g, 2t + 1) of each, lane = 4 g + t; or
// (2t, g), (2t + 1, g) when turned.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const void* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}
__device__ __forceinline__ void load_matrices_turned(uint32_t (&to)[4], const void* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}

// d [16, 8] += a [16, 16] b [16, 8], by the warp together, two numbers to a register.
__device__ __forceinline__ void multiply_add_bf16(float (&d)[4], const uint32_t (&a)[4],
                                                  const uint32_t* b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// d [16, 8] += a [16, 8] b [8, 8] of numbers that went through to_tf32.
__device__ __forceinline__ void multiply_add_tf32(float (&d)[4], const float (&a)[4],
                                                  const float* b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

// Two blocks of a result at once, [left, right] += a [b, b + 2]: all instructions of one step of a
// product, so that an emulator joins the lanes of a warp once.
__device__ __forceinline__ void multiply_add_pair(float (&left)[4], float (&right)[4],
                                                  const uint32_t (&a)[4], const uint32_t (&b)[4]) {
  multiply_add_bf16(left, a, b);
  multiply_add_bf16(right, a, b + 2);
}
// f32 factors as high + low in tf32 each: three products, the smaller ones first.
__device__ __forceinline__ void multiply_add_pair(float (&left)[4], float (&right)[4],
                                                  const float (&a)[4], const float (&a_low)[4],
                                                  const float (&b)[4], const float (&b_low)[4]) {
  multiply_add_tf32(left, a_low, b);
  multiply_add_tf32(right, a_low, b + 2);
  multiply_add_tf32(left, a, b_low);
  multiply_add_tf32(right, a, b_low + 2);
  multiply_add_tf32(left, a, b);
  multiply_add_tf32(right, a, b + 2);
}

}  // namespace weft::kernels::cuda
