#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "kernels/cpu/by_isa.h"

namespace weft::test {

// The vector functions of kernels/cpu/isa/simd.h over arrays, compiled for each instruction set
// with the kernels' own flags. count is a multiple of 16.
struct SimdProbe {
  void (*exp)(const float* x, float* y, int64_t count);
  void (*log)(const float* x, float* y, int64_t count);
  void (*sigmoid)(const float* x, float* y, int64_t count);
  void (*tanh)(const float* x, float* y, int64_t count);
  void (*sqrt)(const float* x, float* y, int64_t count);
  void (*round)(const float* x, bf16* y, int64_t count);
  void (*widen)(const bf16* x, float* y, int64_t count);
  // The first n of lanes 0 .. kLanes - 1, loaded and stored by parts.
  void (*pass_part)(const float* x, float* y, int64_t n);
  int lanes;
};
SimdProbe simd_probe(kernels::IsaTag<Isa::kPlain>);
SimdProbe simd_probe(kernels::IsaTag<Isa::kAvx2>);
SimdProbe simd_probe(kernels::IsaTag<Isa::kAvx512>);
SimdProbe simd_probe(kernels::IsaTag<Isa::kAvx512Bf16>);
SimdProbe simd_probe(kernels::IsaTag<Isa::kAmx>);

}  // namespace weft::test
