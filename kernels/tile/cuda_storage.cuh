#pragma once

#include <cstdint>

#include "kernels/tile/steps.h"

#ifdef __CUDACC__
#include "kernels/tile/cuda_machine.cuh"
#define WEFT_UNROLL _Pragma("unroll")
#else
#define WEFT_UNROLL  // the emulator, included before, has defined what cuda_machine.cuh would
#endif

// Where operands and vectors of the CUDA engine live: in shared memory, with extents known to the
// compiler. Extents are multiples of 16; what a view lacks is filled with zeros.
namespace weft::kernels::cuda {

// Memory outside the tile: one head's columns of some rows of an activation, f32 or (narrow) bf16.
template <class Byte>
struct Matrix {
  Byte* data = nullptr;
  int64_t stride = 0;  // elements from row to row
  int rows = 0, columns = 0;
  bool narrow = false;
};
using In = Matrix<const void>;
using Out = Matrix<void>;

// f32 numbers, `stride` apart; stride 0: one number for all; no data: zeros.
template <class Float>
struct Numbers {
  Float* data = nullptr;
  int64_t stride = 0;
  int count = 0;
};
using InVector = Numbers<const float>;
using OutVector = Numbers<float>;

WEFT_TILE float widen(uint16_t bits) {
  union {
    uint32_t bits;
    float x;
  } word{static_cast<uint32_t>(bits) << 16};
  return word.x;
}

template <class Byte>
WEFT_TILE float entry(const Matrix<Byte>& m, int i, int j) {
  if (i >= m.rows || j >= m.columns) return 0.0f;
  const int64_t at = i * m.stride + j;
  return m.narrow ? widen(static_cast<const uint16_t*>(m.data)[at])
                  : static_cast<const float*>(m.data)[at];
}
WEFT_TILE void set_entry(const Out& m, int i, int j, float x) {
  if (i >= m.rows || j >= m.columns) return;
  const int64_t at = i * m.stride + j;
  if (m.narrow) {
    static_cast<uint16_t*>(m.data)[at] = static_cast<uint16_t>(narrow_pair(x, 0.0f));
  } else {
    static_cast<float*>(m.data)[at] = x;
  }
}

// Elements of an operand. Rows are 16 bytes longer than they need to be, so that the eight rows
// of a fragment lie in different banks.
struct Bf16 {
  using Stored = uint16_t;
};
struct F32 {
  using Stored = float;
};

template <class Element_, int rows_, int columns_, unsigned uses_>
struct Operand {
  using Element = Element_;
  using Stored = typename Element::Stored;
  static constexpr int rows = rows_, columns = columns_;
  static constexpr int pitch = columns + 16 / static_cast<int>(sizeof(Stored));
  static constexpr unsigned uses = uses_;
  static_assert(rows % 16 == 0 && columns % 16 == 0);

  alignas(16) Stored entries[rows * pitch];

  WEFT_TILE const Stored* at(int i, int j) const { return entries + i * pitch + j; }
  WEFT_TILE float operator()(int i, int j) const {
    if constexpr (sizeof(Stored) == 2) {
      return widen(*at(i, j));
    } else {
      return *at(i, j);
    }
  }
  // Entries (i, j) and (i, j + 1), j even.
  WEFT_TILE void set_pair(int i, int j, float x, float y) {
    Stored* to = entries + i * pitch + j;
    if constexpr (sizeof(Stored) == 2) {
      *reinterpret_cast<uint32_t*>(to) = narrow_pair(x, y);
    } else {
      to[0] = x;
      to[1] = y;
    }
  }
};
template <class Element, int rows, int columns, unsigned uses>
WEFT_TILE float entry(const Operand<Element, rows, columns, uses>& op, int i, int j) {
  return op(i, j);
}

template <int size_>
struct Vector {
  static constexpr int size = size_;
  float data[size];

  WEFT_TILE float operator[](int i) const { return data[i]; }
  WEFT_TILE float last() const { return data[size - 1]; }
};

}  // namespace weft::kernels::cuda
