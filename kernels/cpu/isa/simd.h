#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "core/base/dtype.h"

// Vectors of the instruction set this file is compiled for, over the compiler's vector types: one
// source for SSE2, AVX2 and AVX-512. Include only from cpu/isa/*.cc. Everything lives in a
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

// The same bits in every lane, which may be no number (kernels/cpu/isa/words.h): nothing is
// computed.
WEFT_INLINE VF splat(float x) {
#if defined(__AVX512F__)
  return _mm512_set1_ps(x);
#elif defined(__AVX2__)
  return _mm256_set1_ps(x);
#else
  return _mm_set1_ps(x);
#endif
}

// Memory of any alignment. Typed accesses, not memcpy: a store of bytes could change anything, so
// that every pointer in an argument struct would be read again after it.
typedef float LooseF __attribute__((vector_size(kLanes * 4), aligned(4)));
typedef uint16_t LooseH __attribute__((vector_size(kLanes * 2), aligned(2)));

// To 32 bits and back (of numbers that fit into 16). g++ 12 makes four instructions of the first.
WEFT_INLINE VU widened(VH h) {
#if defined(__AVX512F__)
  return reinterpret_cast<VU>(_mm512_maskz_cvtepu16_epi32(0xffff, reinterpret_cast<__m256i>(h)));
#elif defined(__AVX2__)
  return reinterpret_cast<VU>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(h)));
#else
  return __builtin_convertvector(h, VU);
#endif
}
WEFT_INLINE VH narrowed(VU u) {
#if defined(__AVX512F__)
  return reinterpret_cast<VH>(_mm512_maskz_cvtepi32_epi16(0xffff, reinterpret_cast<__m512i>(u)));
#elif defined(__AVX2__)
  const __m256i v = reinterpret_cast<__m256i>(u);
  return reinterpret_cast<VH>(
      _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
#else
  return __builtin_convertvector(u, VH);
#endif
}

WEFT_INLINE VF load(const float* p) { return *reinterpret_cast<const LooseF*>(p); }
WEFT_INLINE VF load(const bf16* p) {
  const VH h = *reinterpret_cast<const LooseH*>(p);
  return reinterpret_cast<VF>(widened(h) << 16);
}

WEFT_INLINE void store(float* p, VF v) { *reinterpret_cast<LooseF*>(p) = v; }

// Past the caches, to memory aligned as vectors are. Other threads see it after `streams_end`.
WEFT_INLINE void stream(float* p, VF v) {
#if defined(__AVX512F__)
  _mm512_stream_ps(p, v);
#elif defined(__AVX2__)
  _mm256_stream_ps(p, v);
#else
  _mm_stream_ps(p, v);
#endif
}
WEFT_INLINE void streams_end() { _mm_sfence(); }

// Round to nearest, ties to even; NaN stays NaN. Subnormal numbers may become zero.
WEFT_INLINE VH rounded(VF v) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<VH>(_mm512_cvtneps_pbh(v));
#else
  const VU u = reinterpret_cast<VU>(v);
  const VU even = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const VU nan = (u >> 16) | 0x40u;
  return narrowed(v != v ? nan : even);
#endif
}
WEFT_INLINE void store(bf16* p, VF v) { *reinterpret_cast<LooseH*>(p) = rounded(v); }

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

// Sums and maxima over lanes, always in the same order: halves with halves.
WEFT_INLINE float sum(VF v) {
#if defined(__AVX512F__)
  const auto eight = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                     __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#elif defined(__AVX2__)
  const VF eight = v;
#endif
#if defined(__AVX2__)
  const auto four = __builtin_shufflevector(eight, eight, 0, 1, 2, 3) +
                    __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
#else
  const VF four = v;
#endif
  const auto two =
      __builtin_shufflevector(four, four, 0, 1) + __builtin_shufflevector(four, four, 2, 3);
  return two[0] + two[1];
}
WEFT_INLINE float max_lane(VF v) {
  float lane[kLanes];
  store(lane, v);
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) lane[i] = lane[i] > lane[i + step] ? lane[i] : lane[i + step];
  }
  return lane[0];
}

// e^x within 1.35 units in the last place; 0 below -86.98, infinite
// above 88.72, NaN for NaN. x = n log 2 + r with |r| <= log(2)/2; 2 e^r by its Taylor polynomial of
// degree 7, times 2^(n - 1), because n = 128 has no exponent of its own.
WEFT_INLINE VF exp(VF x) {
  // The constant comes first, so that a NaN is kept. The ends are far enough for 0 and infinity.
  const VF clamped = min(splat(89.0f), max(splat(-87.5f), x));
  const VF shifted = clamped * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  const VF n = shifted - 12582912.0f;
  const VF r = (clamped - n * 0.693145752f) - n * 1.42860677e-6f;
  // Pairs first: half the latency, which is what bounds loops of exp.
  const VF r2 = r * r;
  const VF p67 = r * 3.9682540e-4f + 2.7777778e-3f;
  const VF p45 = r * 1.6666667e-2f + 8.3333333e-2f;
  const VF p23 = r * 3.3333333e-1f + 1.0f;
  VF p = (p67 * r2 + p45) * r2 + p23;
  p = p * r2 + (r * 2.0f + 2.0f);
  // The low bits of `shifted` are n; for n = -126 nothing is left but 0.
  const VU power = (reinterpret_cast<VU>(shifted) << 23) + (126u << 23);
  return p * reinterpret_cast<VF>(power);
}

// Natural logarithm within 0.95 units in the last place; -inf for 0, NaN below. Not for subnormals.
WEFT_INLINE VF log(VF x) {
  const VI bits = reinterpret_cast<VI>(x);
  const VI offset = bits - 0x3f3504f3;  // so that the mantissa lies in [sqrt(1/2), sqrt(2))
  const VI exponent = offset >> 23;
  const VI mantissa = (offset & 0x007fffff) + 0x3f3504f3;
  const VF m = reinterpret_cast<VF>(mantissa);
  const VF e = __builtin_convertvector(exponent, VF);
  const VF f = m - 1.0f;
  const VF s = f / (2.0f + f), s2 = s * s;
  const VF tail = s2 * (0.66666667f + s2 * (0.4f + s2 * (0.28571430f + s2 * 0.23f)));
  const VF y = e * 1.42860677e-6f + (f - s * (f - tail)) + e * 0.693145752f;
  const VF at_zero = select(x == 0.0f, splat(-__builtin_inff()), y);
  const VF bad = select(x < 0.0f, splat(__builtin_nanf("")), at_zero);
  return select((x != x) | (x == __builtin_inff()), x, bad);
}

// Within 3.1 units in the last place.
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
