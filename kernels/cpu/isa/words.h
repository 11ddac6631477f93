#pragma once

#include "kernels/cpu/isa/simd.h"

// The 32-bit words that panels of a product are made of, and what multiplying two of them means.
//   FloatWords<T>  one k: an f32 number, or a bf16 one widened
//   PairWords      two neighbouring k: bf16 numbers (low half first), missing ones zero
// Words are carried in vectors of f32 whatever their bits mean.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

template <class T>
struct FloatWords {
  using Element = T;
  static constexpr int64_t kPerWord = 1;

  // sum + a b
  WEFT_INLINE static VF multiply_add(VF sum, VF a, VF b) { return sum + a * b; }

  // Words [first, first + kLanes) of a row whose elements follow each other along k.
  WEFT_INLINE static VF along(const T* row, int64_t first) { return load(row + first); }
  // One of them, of a row of `k` elements.
  WEFT_INLINE static float one_along(const T* row, int64_t word, int64_t) {
    return as_float(row[word]);
  }
  // The words of kLanes columns, made of kPerWord rows that hold one k each.
  WEFT_INLINE static VF across(const T* const* rows, int64_t column) {
    return load(rows[0] + column);
  }
  // One of them; `count` rows are there.
  WEFT_INLINE static float one_across(const T* const* rows, int64_t, int64_t column) {
    return as_float(rows[0][column]);
  }
};

struct PairWords {
  using Element = bf16;
  static constexpr int64_t kPerWord = 2;

  // sum + a_0 b_0 + a_1 b_1, in f32
  WEFT_INLINE static VF multiply_add(VF sum, VF a, VF b) {
#if defined(__AVX512BF16__)
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
#else
    return sum + high(a) * high(b) + low(a) * low(b);
#endif
  }

  typedef float LooseWords __attribute__((vector_size(kLanes * 4), aligned(2), may_alias));
  WEFT_INLINE static VF along(const bf16* row, int64_t first) {
    return *reinterpret_cast<const LooseWords*>(row + 2 * first);
  }
  WEFT_INLINE static void put_along(bf16* to, VF words) {
    *reinterpret_cast<LooseWords*>(to) = words;
  }
  WEFT_INLINE static float one_along(const bf16* row, int64_t word, int64_t k) {
    return pair(row[2 * word], 2 * word + 1 < k ? row[2 * word + 1] : bf16{});
  }
  WEFT_INLINE static VF across(const bf16* const* rows, int64_t column) {
    const VH even = *reinterpret_cast<const LooseH*>(rows[0] + column);
    const VH odd = *reinterpret_cast<const LooseH*>(rows[1] + column);
    return reinterpret_cast<VF>(widened(even) | widened(odd) << 16);
  }
  WEFT_INLINE static float one_across(const bf16* const* rows, int64_t count, int64_t column) {
    return pair(rows[0][column], count > 1 ? rows[1][column] : bf16{});
  }

  // The words with their second numbers zero.
  WEFT_INLINE static VF first(VF words) {
    return reinterpret_cast<VF>(reinterpret_cast<VU>(words) & 0x0000ffffu);
  }

  // Numbers rounded to bf16 as words: two neighbouring rows, one number of each in every word; and
  // 2 kLanes neighbouring columns of one row.
  WEFT_INLINE static VF of_rows(VF even, VF odd) {
    return reinterpret_cast<VF>(widened(rounded(even)) | widened(rounded(odd)) << 16);
  }
  WEFT_INLINE static VF of_columns(VF first, VF second) {
#if defined(__AVX512BF16__)
    return reinterpret_cast<VF>(_mm512_cvtne2ps_pbh(second, first));
#else
    VH halves[2] = {rounded(first), rounded(second)};
    VF words;
    __builtin_memcpy(&words, halves, sizeof words);
    return words;
#endif
  }

 private:
  WEFT_INLINE static VF low(VF words) {
    return reinterpret_cast<VF>(reinterpret_cast<VU>(words) << 16);
  }
  WEFT_INLINE static VF high(VF words) {
    return reinterpret_cast<VF>(reinterpret_cast<VU>(words) & 0xffff0000u);
  }
  WEFT_INLINE static float pair(bf16 even, bf16 odd) {
    const uint32_t bits = uint32_t{even.bits} | uint32_t{odd.bits} << 16;
    float word;
    __builtin_memcpy(&word, &bits, sizeof word);
    return word;
  }
};

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
