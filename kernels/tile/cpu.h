#pragma once

#include "kernels/tile/cpu_inverse.h"
#include "kernels/tile/cpu_steps.h"

// The CPU engine: one thread, AVX-512, AVX2 or plain vectors by the flags this is compiled with.
// Products read f32 words, or pairs of bf16 where the machine multiplies those faster; everything
// else is f32. Include only from cpu/isa/*.cc.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

template <tile::Form form, class A, class B>
WEFT_INLINE void extent_of(const tile::Product<form, A, B>& p, int64_t& rows, int64_t& columns) {
  rows = form == tile::Form::kTn ? p.a.columns : p.a.rows;
  columns = form == tile::Form::kNt ? p.b.rows : p.b.columns;
}
template <class Source>
WEFT_INLINE void extent_of(const tile::Take<Source>& step, int64_t& rows, int64_t& columns) {
  rows = step.source.rows;
  columns = step.source.columns;
}

template <class Words>
class EngineOf {
 public:
  using In = tile::In;
  using Out = tile::Out;
  using InVector = tile::InVector;
  using OutVector = tile::OutVector;
  template <class S, auto rows, auto columns, unsigned uses>
  using Operand = WEFT_ISA_NAMESPACE::Operand<Words, S, rows, columns, uses>;
  template <class S, auto size>
  using Vector = WEFT_ISA_NAMESPACE::Vector<S, size>;

  // Numbers of a program are vectors of kLanes columns.
  WEFT_INLINE static VF number(float x) { return splat(x); }
  WEFT_INLINE static VF exp(VF x) { return WEFT_ISA_NAMESPACE::exp(x); }
  // exp() for numbers that are not positive, cheaper where that matters. NaN stays NaN.
  WEFT_INLINE static VF exp_down(VF x) {
    const VF low = splat(-87.33654f);
    const VF clamped = x < low ? low : x;
    const VF shifted = clamped * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
    VI bits;
    __builtin_memcpy(&bits, &shifted, sizeof bits);
    const VF n = shifted - 12582912.0f;
    const VF r = (clamped - n * 0.693145752f) - n * 1.42860677e-6f;
    VF p = splat(1.9841270e-4f);
    p = p * r + 1.3888889e-3f;
    p = p * r + 8.3333333e-3f;
    p = p * r + 4.1666667e-2f;
    p = p * r + 1.6666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const VI power = (bits << 23) + (127 << 23);
    VF scale;
    __builtin_memcpy(&scale, &power, sizeof scale);
    return x < low ? splat(0.0f) : p * scale;
  }
  WEFT_INLINE static float exp(float x) { return WEFT_ISA_NAMESPACE::exp(splat(x))[0]; }
  WEFT_INLINE static VF log(VF x) { return WEFT_ISA_NAMESPACE::log(x); }
  WEFT_INLINE static VF select(VI mask, VF yes, float no) { return mask ? yes : splat(no); }
  WEFT_INLINE static VI inside(const tile::Band& band, Row i, Column j) {
    const VI ahead = lane_numbers() + static_cast<int32_t>(j.j - i.i);
    return (ahead >= clamped(band.low)) & (ahead <= clamped(band.high));
  }
  WEFT_INLINE static VF at(const In& view, Row i, Column j) { return lanes_of(view, i, j); }

  template <class Op, class F = tile::Same>
  [[gnu::noinline]] void load(Op& op, const In& view, F f = {}) {
    if (view.dtype == DType::kF32) {
      load_operand(op, static_cast<const float*>(view.data), view, f);
    } else {
      load_operand(op, static_cast<const bf16*>(view.data), view, f);
    }
  }
  // A load that may use the memory itself, which the driver has laid out as an operand
  // (`padded_width`).
  template <class Op>
  WEFT_INLINE void borrow(Op& op, const In& view) {
    static_assert(!Op::has_turned);
    if constexpr (Op::exact) {
      op.plain = op.left = op.down = static_cast<float*>(const_cast<void*>(view.data));
      op.stride = op.left_stride = op.down_stride = view.stride;
    } else {
      load(op, view);
    }
  }
  template <class Op>
  WEFT_INLINE void clear(Op& op) {
    load(op, In{});
  }
  // The operand as what its entries say, or as what products read: what is put into one does not
  // change the other, unless products read entries.
  template <class Op>
  WEFT_INLINE static OperandPart<Words, tile::kEntries> entries(const Op& op) {
    static_assert(Op::has_plain);
    return OperandPart<Words, tile::kEntries>(op);
  }
  template <class Op>
  WEFT_INLINE static OperandPart<Words, Op::uses & ~tile::kEntries> factors(const Op& op) {
    return OperandPart<Words, Op::uses & ~tile::kEntries>(op);
  }
  // Entries that were set one by one are ready for products.
  template <class Op>
  WEFT_INLINE void settle(Op&& op) {
    words_of_entries(op);
  }

  // op, zero on and above the diagonal, becomes (I + op)^{-1}.
  template <class Op>
  WEFT_INLINE void invert_unit_lower(Op& op) {
    static_assert(!Op::has_turned && Op::has_plain);
    WEFT_ISA_NAMESPACE::invert_unit_lower(op);
    words_of_entries(op);
  }

  WEFT_INLINE void load(Numbers& v, const InVector& view) {
    for (int64_t i = 0; i < v.size; ++i)
      v.data[i] = view.empty() ? 0.0f : view.data[i * view.stride];
    for (int64_t i = v.size; i < round_up(v.size, kStripColumns); ++i) v.data[i] = 0;
  }
  WEFT_INLINE void save(const Numbers& v, const OutVector& view) {
    if (view.empty()) return;
    for (int64_t i = 0; i < v.size; ++i) view.data[i * view.stride] = v.data[i];
  }
  // v[i] = f(i), for the padding too
  template <class F>
  WEFT_INLINE void fill(Numbers& v, F f) {
    for (int64_t i = 0; i < round_up(v.size, kStripColumns); i += kLanes)
      put_floats(v.data + i, f(Column{i}));
  }
  WEFT_INLINE void cumsum(Numbers& v) {
    for (int64_t i = 1; i < v.size; ++i) v.data[i] += v.data[i - 1];
  }
  WEFT_INLINE void reverse_cumsum(Numbers& v) {
    for (int64_t i = v.size - 1; i > 0; --i) v.data[i - 1] += v.data[i];
  }
  WEFT_INLINE void add_to_last(Numbers& v, float x) { v.data[v.size - 1] += x; }
  WEFT_INLINE float total(const Numbers& v) {
    float sum = 0;
    for (int64_t i = 0; i < v.size; ++i) sum += v.data[i];
    return sum;
  }

  // These rows will be loaded or stored soon: their cache lines are asked for a few at a time
  // during the products that come before, since the rows of a head lie far apart and no hardware
  // foresees them.
  template <class Byte>
  WEFT_INLINE void soon(const tile::MatrixView<Byte>& view) {
    if (view.empty() || soon_count_ == kSoon) return;
    soon_[soon_count_++] = {static_cast<const char*>(view.data), view.stride * size_of(view.dtype),
                            view.rows, view.columns * size_of(view.dtype)};
  }

  // The steps, one after the other, on every strip of the result. The right factor's strip stays in
  // the L1 while the left factor passes by.
  template <class First, class... Rest>
  [[gnu::noinline]] void run(const tile::Band& band, const First& first, const Rest&... rest) {
    int64_t rows, columns;
    extent_of(first, rows, columns);
    (prepare(rest), ...);
    const int64_t padded = round_up(rows, 4);
    Strip t(tiles_);
    for (t.j = 0; t.j < columns; t.j += kStripColumns) {
      t.columns = columns - t.j < kStripColumns ? columns - t.j : kStripColumns;
      for (t.i = 0; t.i < padded; t.i += t.height) {
        t.height = strip_rows(padded - t.i);
        t.rows = rows - t.i < t.height ? rows - t.i : t.height;
        if (t.j - (t.i + t.rows - 1) > band.high || t.j + t.columns - 1 - t.i < band.low) {
          (skip(rest, t), ...);
          continue;
        }
        fetch_ahead();
        t.fresh = true;
        apply_from<0>(t, first, rest...);
      }
    }
    (finish(rest), ...);
  }

 private:
  static constexpr int kSoon = 10, kLine = 64, kLinesPerStrip = 16;
  struct Rows {
    const char* data;
    int64_t stride, rows, bytes;
  };

  WEFT_INLINE void fetch_ahead() {
    if (soon_count_ == 0) return;
    Rows& next = soon_[soon_count_ - 1];
    if (next.rows <= 0) {
      --soon_count_;
      return;
    }
    int64_t lines = 0;
    do {
      for (int64_t at = 0; at < next.bytes; at += kLine, ++lines)
        __builtin_prefetch(next.data + at, 0, 2);
      next.data += next.stride;
    } while (--next.rows > 0 && lines < kLinesPerStrip);
  }

  WEFT_INLINE static VI lane_numbers() {
    VI v{};
#pragma GCC unroll 16
    for (int l = 0; l < kLanes; ++l) v[l] = l;
    return v;
  }
  WEFT_INLINE static int32_t clamped(int64_t x) {
    constexpr int64_t limit = int64_t{1} << 30;
    return static_cast<int32_t>(x > limit ? limit : x < -limit ? -limit : x);
  }

  TileUnit tiles_;
  Rows soon_[kSoon];
  int soon_count_ = 0;
};

// Levels with products of bf16 see bf16 inputs only (kernels/cpu/by_isa.h).
#if defined(__AVX512BF16__)
using EngineWords = PairWords;
#else
using EngineWords = FloatWords<float>;
#endif
using Engine = EngineOf<EngineWords>;

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
