#pragma once

#include "kernels/tile/cpu_tiles.h"
#include "kernels/tile/cpu_vectors.h"

// The products of the CPU engine, strip by strip.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

// One strip of the result of a run, at rows [i, i + rows) and columns [j, j + kStripColumns);
// between steps it waits in the L1.
struct Strip {
  TileUnit& tiles;
  int64_t i = 0, j = 0;
  int64_t height = 0;             // rows of the strip, padding included
  int64_t rows = 0, columns = 0;  // without padding
  bool fresh = true;              // nothing accumulated yet: `acc` counts as zero
  alignas(64) float acc[kStripRows * kStripColumns];

  WEFT_INLINE explicit Strip(TileUnit& tiles) : tiles(tiles) {}
  WEFT_INLINE float* at(int64_t r) { return acc + r * kStripColumns; }
};

struct Range {
  int64_t begin, end;
};

// The inner indices at which a banded factor can differ from zero in this strip.
template <tile::Form form>
WEFT_INLINE Range inner_range(tile::Banded banded, const tile::Band& band, const Strip& t,
                              int64_t depth) {
  int64_t first = 0, last = depth - 1;
  if (banded == tile::Banded::kA && form == tile::Form::kTn) {
    first = t.i - band.high, last = t.i + t.height - 1 - band.low;
  } else if (banded == tile::Banded::kA) {
    first = t.i + band.low, last = t.i + t.height - 1 + band.high;
  } else if (banded == tile::Banded::kB && form == tile::Form::kNt) {
    first = t.j + band.low, last = t.j + kStripColumns - 1 + band.high;
  } else if (banded == tile::Banded::kB) {
    first = t.j - band.high, last = t.j + kStripColumns - 1 - band.low;
  }
  first = first < 0 ? 0 : first;
  last = last > depth - 1 ? depth - 1 : last;
  return {first, last < first ? first : last + 1};
}

// t (+)= a b, by vectors.
template <class Words, bool turned>
WEFT_INLINE void multiply_by_vectors(Factors f, Strip& t) {
  if constexpr (!kByTiles) {
    multiply_rows<Words, turned, kStripColumns>(f, t.height, t.acc, t.fresh);
  } else {
    const float* a = f.a;
    for (int64_t c = 0; c < kStripColumns; c += kVectorColumns, f.b += kVectorColumns) {
      for (int64_t i = 0, rows; i < t.height; i += rows) {
        rows = vector_rows(t.height - i);
        f.a = turned ? a + i : a + i * f.a_stride;
        multiply_rows<Words, turned, kStripColumns>(f, rows, t.at(i) + c, t.fresh);
      }
    }
  }
  t.fresh = false;
}

// The part of the inner dimension that fills tiles; what is left of it is for vectors.
template <bool turned>
WEFT_INLINE void multiply_by_tiles(const Matrix& a, int64_t first, Factors& f, Strip& t) {
  const int64_t depth = f.depth - (f.partial ? 1 : 0), words = depth - depth % kTileWords;
  if (words == 0) return;
  Factors whole = f;
  whole.depth = words;
  if constexpr (turned) {
    whole.a_stride = a.risen_stride;
    whole.a = a.risen + t.i * whole.a_stride + first;
  }
  multiply_tiles(t.tiles.registers, whole, t.rows, t.columns, t.acc, t.fresh);
  t.fresh = false;
  f.a += turned ? words * f.a_stride : words;
  f.b += words * f.b_stride;
  f.depth -= words;
}

template <tile::Form form, class A, class B>
WEFT_INLINE void apply(const tile::Product<form, A, B>& step, Strip& t) {
  constexpr bool turned = form == tile::Form::kTn;
  static_assert((A::uses & (turned ? tile::kAt : tile::kA)) != 0, "left operand: use not declared");
  static_assert((B::uses & (form == tile::Form::kNt ? tile::kBt : tile::kB)) != 0,
                "right operand: use not declared");
  const Matrix& a = step.a;
  const Matrix& b = step.b;
  using Words = typename A::Words;
  constexpr int64_t per = Words::kPerWord;
  // A word at the edge of a band has zero as its other number; words go into tiles by sixteen, so
  // that sums are formed in the same order whatever is skipped.
  constexpr int64_t unit = kByTiles && per == 2 ? per * kTileWords : per;
  const int64_t depth = turned ? a.rows : a.columns;
  const Range k = inner_range<form>(step.banded, step.band, t, depth);
  const int64_t first = k.begin / unit * unit / per, beyond = round_up(k.end, unit);
  const int64_t end = beyond < depth ? beyond : depth;
  Factors f;
  f.a_stride = turned ? a.down_stride : a.left_stride;
  f.a = turned ? a.down + first * f.a_stride + t.i : a.left + t.i * f.a_stride + first;
  f.b_stride = form == tile::Form::kNt ? b.turned_stride : b.down_stride;
  f.b = (form == tile::Form::kNt ? b.turned : b.down) + first * f.b_stride + t.j;
  f.depth = k.end > k.begin ? (end + per - 1) / per - first : 0;
  f.partial = end == depth && depth % per != 0 && f.depth > 0;
  if constexpr (kByTiles && per == 2) {
    multiply_by_tiles<turned>(a, first, f, t);
    if (f.depth == 0 && !t.fresh) return;
  }
  multiply_by_vectors<Words, turned>(f, t);
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
