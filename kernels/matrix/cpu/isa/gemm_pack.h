#pragma once

#include "kernels/cpu/isa/transpose.h"
#include "kernels/cpu/isa/words.h"
#include "kernels/matrix/cpu/isa/gemm.h"

// Rearranging f32 and bf16 operands into panels of words [panel][words of k][width].
namespace weft::kernels::WEFT_ISA_NAMESPACE {

template <class T>
WEFT_INLINE const T* stored_row(const GemmOperand& source, int64_t row) {
  const int64_t at = source.gather == nullptr ? row : source.gather[row];
  return static_cast<const T*>(source.data) + at * source.stride;
}

// Up to kLanes lines that are stored rows, turned into columns [0, used) of a panel of `width`.
// Stores whole vectors in ascending k: what spills over the right edge is written again by the next
// word, and the last one needs kLanes words of slack behind the panel.
template <class Words, int width>
WEFT_INLINE void pack_lines(const typename Words::Element* const (&rows)[kLanes], int used,
                            int64_t k, float* out) {
  const int64_t whole = k / Words::kPerWord;
  int64_t p = 0;
  for (; p + kLanes <= whole; p += kLanes) {
    VF square[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) square[i] = i < used ? Words::along(rows[i], p) : VF{};
    transpose(square);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) store(out + (p + i) * width, square[i]);
  }
  for (; p * Words::kPerWord < k; ++p) {
    for (int i = 0; i < kLanes && i < width; ++i) {
      out[p * width + i] = i < used ? Words::one_along(rows[i], p, k) : 0.0f;
    }
  }
}

// Panels of an operand whose stored rows are its lines.
template <class Words, int width>
WEFT_INLINE void pack_along_k(const GemmPack& pack) {
  using T = typename Words::Element;
  constexpr int kPart = width < kLanes ? width : kLanes;
  auto* out = static_cast<float*>(pack.panels);
  const int64_t stride = pack.panel_stride / Words::kPerWord;
  for (int64_t line = 0; line < pack.lines; line += width, out += stride) {
    for (int part = 0; part < width; part += kPart) {
      const int64_t left = pack.lines - line - part;
      const int used = static_cast<int>(left < 0 ? 0 : left > kPart ? kPart : left);
      const T* rows[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const int64_t at = pack.first_line + line + (i < used ? part + i : 0);
        rows[i] = stored_row<T>(pack.source, at) + pack.first_k;
      }
      if (used == kPart) {
        pack_lines<Words, width>(rows, kPart, pack.k, out + part);
      } else {
        pack_lines<Words, width>(rows, used, pack.k, out + part);
      }
    }
  }
}

// Columns [0, lines) of `count` stored rows into the words of a panel; the rest of it is zeros.
template <class Words, int width>
WEFT_INLINE void pack_part(const typename Words::Element* const* rows, int64_t column,
                           int64_t lines, int64_t count, float* out) {
  for (int64_t q = 0; q < count; q += Words::kPerWord, out += width) {
    for (int i = 0; i < width; ++i) {
      out[i] = i < lines ? Words::one_across(rows + q, count - q, column + i) : 0.0f;
    }
  }
}

// Panels of an operand whose stored rows hold one k each. Walks in squares, since both the rows and
// the panels lie at strides that tend to fall into the same cache sets.
template <class Words, int width>
WEFT_INLINE void pack_across_k(const GemmPack& pack) {
  using T = typename Words::Element;
  constexpr int64_t per = Words::kPerWord, kSquare = 16 * per;
  constexpr int kWhole = (width + kLanes - 1) / kLanes * kLanes;
  const int64_t stride = pack.panel_stride / per;
  for (int64_t p = 0; p < pack.k; p += kSquare) {
    const int64_t count = pack.k - p < kSquare ? pack.k - p : kSquare;
    const T* rows[kSquare];
    for (int64_t q = 0; q < count; ++q) {
      rows[q] = stored_row<T>(pack.source, pack.first_k + p + q) + pack.first_line;
    }
    float* out = static_cast<float*>(pack.panels) + p / per * width;
    // Whole vectors spill into the next word, which must come later: so the last one is written
    // exactly, and so is one that is not full.
    const bool last = p + count == pack.k;
    const int64_t whole = count / per - (kWhole > width && last && count % per == 0 ? 1 : 0);
    for (int64_t line = 0; line < pack.lines; line += width, out += stride) {
      const int64_t lines = pack.lines - line;
      if (lines < kWhole) {
        pack_part<Words, width>(rows, line, lines, count, out);
        continue;
      }
      for (int64_t q = 0; q < whole; ++q) {
#pragma GCC unroll 4
        for (int i = 0; i < kWhole; i += kLanes) {
          store(out + q * width + i, Words::across(rows + q * per, line + i));
        }
      }
      pack_part<Words, width>(rows + whole * per, line, lines, count - whole * per,
                              out + whole * width);
    }
  }
}

// Where width is no multiple of kLanes, up to kLanes words behind the last panel are overwritten.
template <class Words, int width>
void pack_panels(const GemmPack& pack) {
  if (pack.source.along_k) {
    pack_along_k<Words, width>(pack);
  } else {
    pack_across_k<Words, width>(pack);
  }
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
