#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/tile/steps.h"

// Where operands and vectors of the CPU engine live: f32, in one scratch buffer near the core.
// Sizes are run-time values, so one instantiation serves every head width. Include only from
// kernels/cpu/*.cc.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

// The accumulator of a product: kStripRows x kStripColumns, in registers. 12 of 16 vectors without
// AVX-512, 24 of 32 with it.
inline constexpr int64_t kStripColumns = 2 * kLanes;
inline constexpr int64_t kStripRows = kLanes == 16 ? 12 : 6;

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Rows of the next strip when `left` rows, a multiple of 4 before the first strip, are to do: whole
// strips and at the end strips of 4 (or 8).
constexpr int64_t strip_rows(int64_t left) {
  if constexpr (kStripRows == 12) return left >= 12 ? 12 : left;
  return left == 4 || left == 8 ? 4 : 6;
}

// Hands out pieces of a buffer; without a buffer it only counts.
struct Carver {
  float* base = nullptr;
  int64_t used = 0;

  WEFT_INLINE float* take(int64_t floats) {
    float* piece = base == nullptr ? nullptr : base + used;
    used += round_up(floats, 16);
    return piece;
  }
};

// Vectors in memory that are known to be floats: unlike the loads and stores of simd.h these cannot
// touch pointers and sizes, which may then stay in registers.
typedef float Floats __attribute__((vector_size(kLanes * 4), aligned(4)));
WEFT_INLINE VF get_floats(const float* p) { return *reinterpret_cast<const Floats*>(p); }
WEFT_INLINE void put_floats(float* p, VF v) { *reinterpret_cast<Floats*>(p) = v; }

// Column of a tile as a program sees it: kLanes neighbours at once. Rows are single.
struct Row {
  int64_t i;
};
struct Column {
  int64_t j;
};

// An odd number of cache lines, so that a column of rows spreads over all sets of the L1.
constexpr int64_t padded_width(int64_t columns) {
  return (round_up(round_up(columns, kStripColumns), 16) / 16 | 1) * 16;
}

struct Matrix {
  int64_t rows = 0, columns = 0;
  float* plain = nullptr;  // [rows rounded up to 4, stride], for every use but Bt
  int64_t stride = 0;
  float* turned = nullptr;  // [columns, turned_stride], for Bt
  int64_t turned_stride = 0;

  WEFT_INLINE VF operator()(Row r, Column c) const {
    return get_floats(plain + r.i * stride + c.j);
  }
};

template <class S, auto rows_, auto columns_, unsigned uses_>
struct Operand : Matrix {
  static constexpr unsigned uses = uses_;
  static constexpr bool has_plain = (uses & (tile::kA | tile::kAt | tile::kB)) != 0;
  static constexpr bool has_turned = (uses & tile::kBt) != 0;

  WEFT_INLINE void place(Carver& carver, const S& sizes) {
    rows = (sizes.*rows_)();
    columns = (sizes.*columns_)();
    stride = padded_width(columns);
    turned_stride = padded_width(rows);
    if (has_plain) plain = carver.take(round_up(rows, 4) * stride);
    if (has_turned) turned = carver.take(columns * turned_stride);
  }
};

struct Numbers {
  int64_t size = 0;
  float* data = nullptr;     // padded to whole strips
  float* partial = nullptr;  // [size, kLanes]: row sums before the lanes are added up

  WEFT_INLINE VF operator[](Row r) const { return splat(data[r.i]); }
  WEFT_INLINE VF operator[](Column c) const { return get_floats(data + c.j); }
  WEFT_INLINE float last() const { return data[size - 1]; }
};

template <class S, auto size_>
struct Vector : Numbers {
  WEFT_INLINE void place(Carver& carver, const S& sizes) {
    size = (sizes.*size_)();
    data = carver.take(round_up(size, kStripColumns));
    partial = carver.take(round_up(size, 4) * kLanes);
  }
};

// Lays the parts of a program's space into `buffer` (nullptr: only measures); returns the floats
// used.
template <class Space, class S>
WEFT_INLINE int64_t place(Space& space, const S& sizes, float* buffer) {
  Carver carver{buffer};
  space.parts([&](auto& part) { part.place(carver, sizes); });
  return carver.used;
}

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
