#pragma once

#include "kernels/tile/cpu_product.h"

// The inverse of a unit lower triangular matrix T = (I + L)^{-1}, in f32 and in place: diagonal
// blocks by substitution, the rows left of them by products of blocks,
//   T_I = T_II (E_I - L_I T)       (E_I: rows I of the identity; T: the rows above I)
namespace weft::kernels::WEFT_ISA_NAMESPACE {

inline constexpr int64_t kInverseBlock = 16;

// to [16, 16] = (I + L_II)^{-1} for the block at (first, first); rows beyond `rows` are zero.
WEFT_INLINE void invert_block(const Matrix& op, int64_t first, int64_t rows, float* to) {
  constexpr int64_t kParts = kInverseBlock / kLanes;
  for (int64_t i = 0; i < kInverseBlock; ++i) {
    VF row[kParts] = {};
    const float* l = op.plain + (first + i) * op.stride + first;
    for (int64_t k = 0; i < rows && k < i; ++k) {
      const VF x = splat(l[k]);
      for (int64_t c = 0; c < kParts; ++c)
        row[c] -= x * get_floats(to + k * kInverseBlock + c * kLanes);
    }
    for (int64_t c = 0; c < kParts; ++c) put_floats(to + i * kInverseBlock + c * kLanes, row[c]);
    if (i < rows) to[i * kInverseBlock + i] = 1.0f;
  }
}

// y [16, kVectorColumns] = E_I - L_I T at columns [j, j + kVectorColumns). T is lower triangular,
// so its rows before j do not count, and columns of L that have become T already are not read.
WEFT_INLINE void right_side(const Matrix& op, int64_t first, int64_t rows, int64_t j, float* y) {
  const int64_t depth = first > j ? first - j : 0;
  for (int64_t r = 0; r < rows; r += 4) {
    multiply<FloatWords<float>, 4, false>({op.plain + (first + r) * op.stride + j, op.stride,
                                           op.plain + j * op.stride + j, op.stride, depth},
                                          y + r * kVectorColumns, true);
  }
  for (int64_t r = 0; r < kInverseBlock; ++r) {
    float* row = y + r * kVectorColumns;
    for (int64_t c = 0; c < kVectorColumns; c += kLanes)
      put_floats(row + c, r < rows ? -get_floats(row + c) : VF{});
    const int64_t diagonal = first + r - j;
    if (r < rows && diagonal >= 0 && diagonal < kVectorColumns) row[diagonal] += 1.0f;
  }
}

// op: L, zero on and above the diagonal, becomes (I + L)^{-1}.
[[gnu::noinline]] inline void invert_unit_lower(const Matrix& op) {
  alignas(64) float block[kInverseBlock * kInverseBlock];
  alignas(64) float y[kInverseBlock * kVectorColumns], result[4 * kVectorColumns];
  for (int64_t first = 0; first < op.rows; first += kInverseBlock) {
    const int64_t left = op.rows - first, rows = left < kInverseBlock ? left : kInverseBlock;
    invert_block(op, first, rows, block);
    for (int64_t j = 0; j < first + rows; j += kVectorColumns) {
      right_side(op, first, rows, j, y);
      for (int64_t r = 0; r < rows; ++r) {
        if (r % 4 == 0) {
          multiply<FloatWords<float>, 4, false>(
              {block + r * kInverseBlock, kInverseBlock, y, kVectorColumns, rows}, result, true);
        }
        float* to = op.plain + (first + r) * op.stride + j;
        for (int64_t c = 0; c < kVectorColumns; c += kLanes)
          put_floats(to + c, get_floats(result + r % 4 * kVectorColumns + c));
      }
    }
  }
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
