#pragma once

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd.h"

// Rearranging f32 and bf16 operands into f32 panels [panel][k][width].
namespace weft::kernels::WEFT_ISA_NAMESPACE {

template <class T>
WEFT_INLINE const T* stored_row(const GemmOperand& source, int64_t row) {
  const int64_t at = source.gather == nullptr ? row : source.gather[row];
  return static_cast<const T*>(source.data) + at * source.stride;
}

// One round of transposing a square of vectors: exchanges the off-diagonal blocks of `step` lanes.
template <int step>
WEFT_INLINE void exchange(VF& upper, VF& lower) {
  VI low, high;
  for (int lane = 0; lane < kLanes; ++lane) {
    low[lane] = (lane & step) == 0 ? lane : lane - step + kLanes;
    high[lane] = (lane & step) == 0 ? lane + step : lane + kLanes;
  }
  const VF a = __builtin_shuffle(upper, lower, low);
  lower = __builtin_shuffle(upper, lower, high);
  upper = a;
}

template <int step>
WEFT_INLINE void exchange_all(VF (&rows)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if ((i & step) == 0) exchange<step>(rows[i], rows[i + step]);
  }
}

WEFT_INLINE void transpose(VF (&rows)[kLanes]) {
  if constexpr (kLanes > 8) exchange_all<8>(rows);
  if constexpr (kLanes > 4) exchange_all<4>(rows);
  exchange_all<2>(rows);
  exchange_all<1>(rows);
}

// Up to kLanes lines that are stored rows, turned into columns [0, used) of a panel of `width`.
// Stores whole vectors in ascending k: what spills over the right edge is written again by the next
// k, and the last one needs kLanes elements of slack behind the panel.
template <int width, class T>
WEFT_INLINE void pack_lines(const T* const (&rows)[kLanes], int used, int64_t k, float* out) {
  int64_t p = 0;
  for (; p + kLanes <= k; p += kLanes) {
    VF square[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) square[i] = i < used ? load(rows[i] + p) : VF{};
    transpose(square);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) store(out + (p + i) * width, square[i]);
  }
  for (; p < k; ++p) {
    for (int i = 0; i < kLanes && i < width; ++i) {
      out[p * width + i] = i < used ? as_float(rows[i][p]) : 0.0f;
    }
  }
}

// Panels of an operand whose stored rows are its lines.
template <int width, class T>
WEFT_INLINE void pack_along_k(const GemmPack& pack) {
  constexpr int kPart = width < kLanes ? width : kLanes;
  auto* out = static_cast<float*>(pack.panels);
  for (int64_t line = 0; line < pack.lines; line += width, out += pack.panel_stride) {
    for (int part = 0; part < width; part += kPart) {
      const int64_t left = pack.lines - line - part;
      const int used = static_cast<int>(left < 0 ? 0 : left > kPart ? kPart : left);
      const T* rows[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const int64_t at = pack.first_line + line + (i < used ? part + i : 0);
        rows[i] = stored_row<T>(pack.source, at) + pack.first_k;
      }
      if (used == kPart) {
        pack_lines<width>(rows, kPart, pack.k, out + part);
      } else {
        pack_lines<width>(rows, used, pack.k, out + part);
      }
    }
  }
}

// One k of one panel, from a stored row. The last k must not spill: the next panel has begun
// already.
template <int width, class T>
WEFT_INLINE void pack_across(const T* in, int64_t lines, bool last, float* out) {
  constexpr int kWhole = (width + kLanes - 1) / kLanes * kLanes;
  if (lines >= kWhole && (kWhole == width || !last)) {
    for (int i = 0; i < kWhole; i += kLanes) store(out + i, load(in + i));
  } else {
    for (int i = 0; i < width; ++i) out[i] = i < lines ? as_float(in[i]) : 0.0f;
  }
}

// Panels of an operand whose stored rows hold one k each. Walks in squares, since both the rows and
// the panels lie at strides that tend to fall into the same cache sets.
template <int width, class T>
WEFT_INLINE void pack_across_k(const GemmPack& pack) {
  constexpr int64_t kSquare = 16;
  auto* panels = static_cast<float*>(pack.panels);
  for (int64_t p = 0; p < pack.k; p += kSquare) {
    const int64_t end = p + kSquare < pack.k ? p + kSquare : pack.k;
    float* out = panels;
    for (int64_t line = 0; line < pack.lines; line += width, out += pack.panel_stride) {
      for (int64_t q = p; q < end; ++q) {
        const T* in = stored_row<T>(pack.source, pack.first_k + q) + pack.first_line + line;
        pack_across<width>(in, pack.lines - line, q + 1 == pack.k, out + q * width);
      }
    }
  }
}

// Where width is no multiple of kLanes, up to kLanes elements behind the last panel are
// overwritten.
template <int width, class T>
void pack_panels(const GemmPack& pack) {
  if (pack.source.along_k) {
    pack_along_k<width, T>(pack);
  } else {
    pack_across_k<width, T>(pack);
  }
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
