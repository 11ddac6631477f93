#pragma once

#include "kernels/cpu/isa/words.h"
#include "kernels/tile/steps.h"

// Where operands and vectors of the CPU engine live: in one scratch buffer near the core. Sizes are
// run-time values, so one instantiation serves every head width. Include only from
// cpu/isa/*.cc.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

// Whether products are made by AMX tiles, of pairs of bf16: on the hardware, or emulated by tests.
#if defined(__AMX_BF16__) || defined(WEFT_EMULATED_TILES)
inline constexpr bool kByTiles = true;
#else
inline constexpr bool kByTiles = false;
#endif

// The accumulator of a product: kStripRows x kStripColumns. In registers 12 of 16 vectors without
// AVX-512, 24 of 32 with it; or four tiles.
inline constexpr int64_t kVectorColumns = 2 * kLanes;
inline constexpr int64_t kStripColumns = kByTiles ? 32 : kVectorColumns;
inline constexpr int64_t kStripRows = kByTiles ? 32 : kLanes == 16 ? 12 : 6;
// Rows of a left factor are there, if without meaning, up to a multiple of this.
inline constexpr int64_t kRowUnit = kByTiles ? 32 : 4;

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Rows of the next piece when `left` rows, a multiple of 4 before the first piece, are to be
// accumulated in registers: as many as fit, and at the end pieces of 4 (or 8).
constexpr int64_t vector_rows(int64_t left) {
  if constexpr (kLanes == 16) return left >= 12 ? 12 : left;
  return left == 4 || left == 8 ? 4 : 6;
}
constexpr int64_t strip_rows(int64_t left) { return kByTiles ? kStripRows : vector_rows(left); }

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

// The entries, and the words (kernels/cpu/isa/words.h) that products read. f32 words are the
// entries: then `left` and `down` are `plain`. What an operand is not used for is not there.
struct Matrix {
  int64_t rows = 0, columns = 0;
  float* plain = nullptr;  // entries [rows rounded up, stride]
  int64_t stride = 0;
  float* left = nullptr;  // words along the columns [rows rounded up, left_stride], for A
  int64_t left_stride = 0;
  float* down = nullptr;  // words down the rows [words of rows, down_stride], for At and B
  int64_t down_stride = 0;
  float* turned = nullptr;  // words along the columns [words of columns, turned_stride], for Bt
  int64_t turned_stride = 0;
  float* risen =
      nullptr;  // words down the rows [columns rounded up, risen_stride], for At by tiles
  int64_t risen_stride = 0;

  WEFT_INLINE VF operator()(Row r, Column c) const {
    return get_floats(plain + r.i * stride + c.j);
  }
};

// An operand as maps read it: its entries, or the words of its products widened.
template <class Forms>
WEFT_INLINE VF entries_at(const Matrix& m, Row r, Column c) {
  if constexpr (Forms::has_plain) {
    return m(r, c);
  } else if constexpr (Forms::has_left) {
    return load(reinterpret_cast<const bf16*>(m.left + r.i * m.left_stride) + c.j);
  } else {
    static_assert(Forms::has_down, "entries are read that the operand does not keep");
    const VU words = reinterpret_cast<VU>(get_floats(m.down + r.i / 2 * m.down_stride + c.j));
    return reinterpret_cast<VF>(r.i % 2 == 0 ? words << 16 : words & 0xffff0000u);
  }
}

// Which of these an operand of given words has.
template <class W, unsigned uses_>
struct Forms {
  using Words = W;
  static constexpr unsigned uses = uses_;
  static constexpr bool exact = W::kPerWord == 1;  // words are entries
  static constexpr bool has_plain =
      (uses & (exact ? tile::kEntries | tile::kA | tile::kAt | tile::kB : tile::kEntries)) != 0;
  static constexpr bool has_left = !exact && (uses & tile::kA) != 0;
  static constexpr bool has_down = !exact && (uses & (tile::kAt | tile::kB)) != 0;
  static constexpr bool has_turned = (uses & tile::kBt) != 0;
  static constexpr bool has_risen = kByTiles && !exact && (uses & tile::kAt) != 0;

  static constexpr int64_t words(int64_t n) { return (n + W::kPerWord - 1) / W::kPerWord; }
};

template <class W, class S, auto rows_, auto columns_, unsigned uses_>
struct Operand : Matrix, Forms<W, uses_> {
  using F = Forms<W, uses_>;

  WEFT_INLINE VF operator()(Row r, Column c) const { return entries_at<F>(*this, r, c); }

  WEFT_INLINE void place(Carver& carver, const S& sizes) {
    rows = (sizes.*rows_)();
    columns = (sizes.*columns_)();
    const int64_t tall = round_up(rows, kRowUnit);
    stride = down_stride = padded_width(columns);
    left_stride = F::exact ? stride : padded_width(F::words(columns));
    turned_stride = padded_width(rows);
    risen_stride = padded_width(F::words(rows));
    if (F::has_plain) plain = carver.take(tall * stride);
    left = F::exact ? plain : F::has_left ? carver.take(tall * left_stride) : nullptr;
    down = F::exact ? plain : F::has_down ? carver.take(F::words(tall) * down_stride) : nullptr;
    if (F::has_turned) turned = carver.take(F::words(columns) * turned_stride);
    if (F::has_risen) risen = carver.take(round_up(columns, kRowUnit) * risen_stride);
  }
};

// Some rows and columns of an operand, or some of its uses.
template <class W, unsigned uses_>
struct OperandPart : Matrix, Forms<W, uses_> {
  WEFT_INLINE explicit OperandPart(const Matrix& of) : Matrix(of) {}

  WEFT_INLINE VF operator()(Row r, Column c) const {
    return entries_at<Forms<W, uses_>>(*this, r, c);
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
