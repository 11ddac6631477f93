#pragma once

#include "kernels/matrix/cpu/isa/gemm_pack.h"

// Rearranging bf16 operands for tiles, in blocks of 32 lines by 32 k (1024 elements, 2 KB):
//   left   [32 rows][32 k]: two tiles of 16 rows of 64 bytes
//   right  [2 tiles][16 pairs of k][16 columns][2]: a tile's row holds two k of 16 columns
// A panel is [k / 32] such blocks. Both sides are made of the same two moves on pairs of k, 32 bits
// each: interleaving two stored rows, and transposing 16 by 16.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

inline constexpr int kBlock = 32;          // lines and k of a block
inline constexpr int kPairs = kBlock / 2;  // also lines of a tile
inline constexpr int64_t kBlockElements = kBlock * kBlock;

// 32 stored rows of a block: the matrix itself, or at its edges a copy filled up with zeros.
class BlockRows {
 public:
  WEFT_INLINE BlockRows(const GemmOperand& source, int64_t row, int64_t rows, int64_t column,
                        int64_t columns) {
    if (rows >= kBlock && columns >= kBlock) {
      for (int r = 0; r < kBlock; ++r) rows_[r] = stored_row<bf16>(source, row + r) + column;
      return;
    }
    const int64_t used = columns < kBlock ? columns : kBlock;
    __builtin_memset(copy_, 0, sizeof copy_);
    for (int r = 0; r < kBlock; ++r) {
      rows_[r] = copy_[r];
      if (r >= rows) continue;
      __builtin_memcpy(copy_[r], stored_row<bf16>(source, row + r) + column,
                       static_cast<size_t>(used) * sizeof(bf16));
    }
  }
  BlockRows(const BlockRows&) = delete;
  BlockRows& operator=(const BlockRows&) = delete;

  WEFT_INLINE const bf16* operator[](int row) const { return rows_[row]; }

 private:
  const bf16* rows_[kBlock];
  bf16 copy_[kBlock][kBlock];
};

// The pairs (even[i], odd[i]) of 16 columns.
WEFT_INLINE void interleave(const bf16* even, const bf16* odd, bf16* out) {
  for (int i = 0; i < kPairs; i += kLanes) {
    VH low, high;
    __builtin_memcpy(&low, even + i, sizeof low);
    __builtin_memcpy(&high, odd + i, sizeof high);
    const VU pairs = __builtin_convertvector(low, VU) | __builtin_convertvector(high, VU) << 16;
    __builtin_memcpy(out + 2 * i, &pairs, sizeof pairs);
  }
}

// 16 rows of 16 pairs, transposed; `out` has rows of 16 pairs, `out_stride` elements apart.
WEFT_INLINE void transpose_pairs(const bf16* const (&rows)[kPairs], bf16* out, int64_t out_stride) {
  for (int i = 0; i < kPairs; i += kLanes) {
    for (int j = 0; j < kPairs; j += kLanes) {
      VF square[kLanes];
      for (int r = 0; r < kLanes; ++r) {
        __builtin_memcpy(&square[r], rows[i + r] + 2 * j, sizeof square[r]);
      }
      transpose(square);
      for (int r = 0; r < kLanes; ++r) {
        __builtin_memcpy(out + (j + r) * out_stride + 2 * i, &square[r], sizeof square[r]);
      }
    }
  }
}

// A block of the left operand from stored rows that are lines.
WEFT_INLINE void left_along_k(const BlockRows& rows, bf16* out) {
  for (int r = 0; r < kBlock; ++r) __builtin_memcpy(out + r * kBlock, rows[r], 2 * kBlock);
}

// ... from stored rows that hold one k each.
WEFT_INLINE void left_across_k(const BlockRows& rows, bf16* out) {
  for (int tile = 0; tile < 2; ++tile) {
    bf16 pairs[kPairs][kBlock];
    const bf16* from[kPairs];
    for (int p = 0; p < kPairs; ++p) {
      interleave(rows[2 * p] + tile * kPairs, rows[2 * p + 1] + tile * kPairs, pairs[p]);
      from[p] = pairs[p];
    }
    transpose_pairs(from, out + tile * kPairs * kBlock, kBlock);
  }
}

WEFT_INLINE void right_along_k(const BlockRows& rows, bf16* out) {
  for (int tile = 0; tile < 2; ++tile) {
    const bf16* from[kPairs];
    for (int c = 0; c < kPairs; ++c) from[c] = rows[tile * kPairs + c];
    transpose_pairs(from, out + tile * kPairs * kBlock, kBlock);
  }
}

WEFT_INLINE void right_across_k(const BlockRows& rows, bf16* out) {
  for (int tile = 0; tile < 2; ++tile) {
    for (int p = 0; p < kPairs; ++p) {
      interleave(rows[2 * p] + tile * kPairs, rows[2 * p + 1] + tile * kPairs,
                 out + (tile * kPairs + p) * kBlock);
    }
  }
}

enum class Side : uint8_t { kLeft, kRight };

template <Side side>
void amx_pack(const GemmPack& pack) {
  const bool along_k = pack.source.along_k;
  for (int64_t line = 0; line < pack.lines; line += kBlock) {
    bf16* out = static_cast<bf16*>(pack.panels) + line / kBlock * pack.panel_stride;
    for (int64_t p = 0; p < pack.k; p += kBlock, out += kBlockElements) {
      const int64_t first_line = pack.first_line + line, lines = pack.lines - line;
      const int64_t first_k = pack.first_k + p, k = pack.k - p;
      if (along_k) {
        const BlockRows rows(pack.source, first_line, lines, first_k, k);
        side == Side::kLeft ? left_along_k(rows, out) : right_along_k(rows, out);
      } else {
        const BlockRows rows(pack.source, first_k, k, first_line, lines);
        side == Side::kLeft ? left_across_k(rows, out) : right_across_k(rows, out);
      }
    }
  }
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
