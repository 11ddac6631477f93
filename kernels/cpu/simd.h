#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "core/dtype.h"

// Vectors of the instruction set this file is compiled for, over the compiler's vector types: one
// source for SSE2, AVX2 and AVX-512. Include only from kernels/cpu/*.cc. Everything lives in a
// namespace of the instruction set and is forced inline: were such a function emitted out of line
// in two sets, the linker would keep one of them for both and a plain machine would meet AVX-512
// (tests/rules checks the objects).
#define WEFT_INLINE [[gnu::always_inline]] inline

namespace weft::kernels::WEFT_ISA_NAMESPACE {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float VF __attribute__((vector_size(kLanes * 4)));
typedef int32_t VI __attribute__((vector_size(kLanes * 4)));
typedef uint32_t VU __attribute__((vector_size(kLanes * 4)));
typedef uint16_t VH __attribute__((vector_size(kLanes * 2)));

WEFT_INLINE VF splat(float x) { return VF{} + x; }
WEFT_INLINE VI splat_int(int32_t x) { return VI{} + x; }

WEFT_INLINE VF load(const float* p) {
  VF v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
WEFT_INLINE VF load(const bf16* p) {
  VH h;
  __builtin_memcpy(&h, p, sizeof h);
  const VU u = __builtin_convertvector(h, VU) << 16;
  VF v;
  __builtin_memcpy(&v, &u, sizeof v);
  return v;
}

WEFT_INLINE void store(float* p, VF v) { __builtin_memcpy(p, &v, sizeof v); }

// Round to nearest, ties to even; NaN stays NaN.
WEFT_INLINE VH rounded(VF v) {
  VU u;
  __builtin_memcpy(&u, &v, sizeof u);
  const VU even = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const VU nan = (u >> 16) | 0x40u;
  const VI is_nan = v != v;
  VU mask;
  __builtin_memcpy(&mask, &is_nan, sizeof mask);
  return __builtin_convertvector((even & ~mask) | (nan & mask), VH);
}
WEFT_INLINE void store(bf16* p, VF v) {
  const VH h = rounded(v);
  __builtin_memcpy(p, &h, sizeof h);
}

// Tails: the first n < kLanes elements; the rest reads as zero and is not written.
template <class T>
WEFT_INLINE VF load_part(const T* p, int64_t n) {
  T part[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) part[i] = p[i];
  return load(part);
}
template <class T>
WEFT_INLINE void store_part(T* p, VF v, int64_t n) {
  T part[kLanes];
  store(part, v);
  for (int64_t i = 0; i < n; ++i) p[i] = part[i];
}

// Scalars, as the vectors round them.
WEFT_INLINE float as_float(float x) { return x; }
WEFT_INLINE float as_float(bf16 x) {
  const uint32_t u = uint32_t{x.bits} << 16;
  float f;
  __builtin_memcpy(&f, &u, sizeof f);
  return f;
}
template <class T>
WEFT_INLINE T from_float(float x) {
  T out[kLanes];
  store(out, splat(x));
  return out[0];
}

WEFT_INLINE VF select(VI mask, VF yes, VF no) { return mask ? yes : no; }
// a > b ? a : b and a < b ? a : b: the second where one is NaN. The compiler makes two instructions
// of the condition, and g++ 12 warns about the plain 512-bit ones.
WEFT_INLINE VF max(VF a, VF b) {
#if defined(__AVX512F__)
  return _mm512_maskz_max_ps(0xffff, a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return _mm_max_ps(a, b);
#endif
}
WEFT_INLINE VF min(VF a, VF b) {
#if defined(__AVX512F__)
  return _mm512_maskz_min_ps(0xffff, a, b);
#elif defined(__AVX2__)
  return _mm256_min_ps(a, b);
#else
  return _mm_min_ps(a, b);
#endif
}
WEFT_INLINE VF abs(VF a) { return max(a, -a); }

WEFT_INLINE VF sqrt(VF v) {
#if defined(__AVX512F__)
  return _mm512_maskz_sqrt_ps(0xffff, v);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(v);
#else
  return _mm_sqrt_ps(v);
#endif
}

// Sums and maxima over lanes, always in the same order.
WEFT_INLINE float sum(VF v) {
  float lane[kLanes];
  store(lane, v);
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
  }
  return lane[0];
}
WEFT_INLINE float max_lane(VF v) {
  float lane[kLanes];
  store(lane, v);
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) lane[i] = lane[i] > lane[i + step] ? lane[i] : lane[i + step];
  }
  return lane[0];
}

// e^x within 1.2 units in the last place (0.95 with fused multiply-add); 0 below -86.98, infinite
// above 88.72, NaN for NaN. x = n log 2 + r with |r| <= log(2)/2; 2 e^r by its Taylor polynomial of
// degree 7, times 2^(n - 1), because n = 128 has no exponent of its own.
WEFT_INLINE VF exp(VF x) {
  // The constant comes first, so that a NaN is kept. The ends are far enough for 0 and infinity.
  const VF clamped = min(splat(89.0f), max(splat(-87.5f), x));
  const VF shifted = clamped * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  const VF n = shifted - 12582912.0f;
  const VF r = (clamped - n * 0.693145752f) - n * 1.42860677e-6f;
  VF p = splat(3.9682540e-4f);
  p = p * r + 2.7777778e-3f;
  p = p * r + 1.6666667e-2f;
  p = p * r + 8.3333333e-2f;
  p = p * r + 3.3333333e-1f;
  p = p * r + 1.0f;
  p = p * r + 2.0f;
  p = p * r + 2.0f;
  VI power;  // the low bits of `shifted` are n; for n = -126 nothing is left but 0
  __builtin_memcpy(&power, &shifted, sizeof power);
  power = (power << 23) + (126 << 23);
  VF scale;
  __builtin_memcpy(&scale, &power, sizeof scale);
  return p * scale;
}

// Natural logarithm within 0.95 units in the last place; -inf for 0, NaN below. Not for subnormals.
WEFT_INLINE VF log(VF x) {
  VI bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  const VI offset = bits - 0x3f3504f3;  // so that the mantissa lies in [sqrt(1/2), sqrt(2))
  const VI exponent = offset >> 23;
  const VI mantissa = (offset & 0x007fffff) + 0x3f3504f3;
  VF m;
  __builtin_memcpy(&m, &mantissa, sizeof m);
  const VF e = __builtin_convertvector(exponent, VF);
  const VF f = m - 1.0f;
  const VF s = f / (2.0f + f), s2 = s * s;
  const VF tail = s2 * (0.66666667f + s2 * (0.4f + s2 * (0.28571430f + s2 * 0.23f)));
  const VF y = e * 1.42860677e-6f + (f - s * (f - tail)) + e * 0.693145752f;
  const VF at_zero = select(x == 0.0f, splat(-__builtin_inff()), y);
  const VF bad = select(x < 0.0f, splat(__builtin_nanf("")), at_zero);
  return select((x != x) | (x == __builtin_inff()), x, bad);
}

// Within 2.5 units in the last place.
WEFT_INLINE VF sigmoid(VF x) { return 1.0f / (1.0f + exp(-x)); }
WEFT_INLINE VF silu(VF x) { return x * sigmoid(x); }

// Within 1.5 units in the last place. Near 0 by an odd polynomial, since 1 - 2 / (e^2x + 1) loses
// all relative precision there.
WEFT_INLINE VF tanh(VF x) {
  const VF z = x * x;
  VF p = splat(-5.70498872745e-3f);
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const VF size = abs(x);
  const VF far = 1.0f - 2.0f / (exp(size + size) + 1.0f);
  return select(size < 0.625f, p * z * x + x, select(x < 0.0f, -far, far));
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
