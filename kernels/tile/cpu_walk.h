#pragma once

#include <type_traits>
#include <utility>

#include "kernels/tile/cpu.h"

// Words for decays that differ from channel to channel: parts of operands, walks along the rows of
// every column, and pairs of rows of one block. A decay between two rows is the product of the
// decays in between, never a quotient: all factors are <= 1, so nothing overflows, and what
// underflows is zero. Include only from cpu/isa/*.cc.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

// Steps that see entries only.
struct Walks {
  // Rows [first, first + count) of an operand.
  struct Span {
    int64_t first, count;
  };

  // Writes entries; `settle` makes products see them.
  WEFT_INLINE static void set(Matrix& op, Row i, Column j, VF x) {
    put_floats(op.plain + i.i * op.stride + j.j, x);
  }

  // carried[j] goes through the rows, x = step(i, j, x), first to last or last to first.
  template <class Step>
  WEFT_INLINE static void walk_down(Numbers& carried, Span rows, Step step) {
    for (int64_t j = 0; j < carried.size; j += kLanes) {
      VF x = get_floats(carried.data + j);
      for (int64_t i = rows.first; i < rows.first + rows.count; ++i) x = step(Row{i}, Column{j}, x);
      put_floats(carried.data + j, x);
    }
  }
  template <class Step>
  WEFT_INLINE static void walk_up(Numbers& carried, Span rows, Step step) {
    for (int64_t j = 0; j < carried.size; j += kLanes) {
      VF x = get_floats(carried.data + j);
      for (int64_t i = rows.first + rows.count - 1; i >= rows.first; --i) {
        x = step(Row{i}, Column{j}, x);
      }
      put_floats(carried.data + j, x);
    }
  }

  // p(j, i) = sum over c of q(i, c) k(j, c) a(j + 1, c) ... a(i - 1, c),  j < i both in `rows`
  // (16 at most).
  static void near_scores(const Matrix& q, const Matrix& k, const Matrix& a, Span rows, Matrix& p);
  // With dp(i, j), the gradient of such a sum, and w its product of decays:
  //   dq(i, c) += dp(i, j) w k(j, c),   dk(j, c) += dp(i, j) w q(i, c)
  struct Pairs {
    const Matrix &q, &k, &a;
  };
  static void near_gradients(const Pairs& of, Span rows, const Matrix& dp, Matrix& dq, Matrix& dk);
};

inline constexpr int64_t kNearRows = 16;

// f(n) for the rows of a block that have n = 1, 2, ... rows of it before them, n a constant.
template <class F>
WEFT_INLINE void for_counts(Walks::Span rows, F f) {
  [&]<int... n>(std::integer_sequence<int, n...>) {
    ((n + 1 < rows.count ? f(std::integral_constant<int, n + 1>{}) : void()), ...);
  }
  (std::make_integer_sequence<int, kNearRows - 1>{});
}

// Row first + count of near_scores against the `count` rows before it, latest first: sums stay in
// registers.
template <int count>
WEFT_INLINE void near_row(const Matrix& q, const Matrix& k, const Matrix& a, int64_t first,
                          Matrix& p) {
  const int64_t i = first + count;
  VF sums[count] = {};
  for (int64_t c = 0; c < q.columns; c += kLanes) {
    VF w = q(Row{i}, Column{c});
#pragma GCC unroll 16
    for (int64_t j = count - 1; j >= 0; --j) {
      sums[j] += w * k(Row{first + j}, Column{c});
      w *= a(Row{first + j}, Column{c});
    }
  }
  float* to = p.plain + first * p.stride + i;
#pragma GCC unroll 16
  for (int64_t j = 0; j < count; ++j) to[j * p.stride] = sum(sums[j]);
}

inline void Walks::near_scores(const Matrix& q, const Matrix& k, const Matrix& a, Span rows,
                               Matrix& p) {
  for_counts(rows, [&](auto count) { near_row<decltype(count)::value>(q, k, a, rows.first, p); });
}

inline void Walks::near_gradients(const Pairs& of, Span rows, const Matrix& dp, Matrix& dq,
                                  Matrix& dk) {
  for (int64_t c = 0; c < of.q.columns; c += kLanes) {
    const Column column{c};
    for (int64_t i = rows.first + 1; i < rows.first + rows.count; ++i) {
      const VF q = of.q(Row{i}, column);
      VF w = splat(1.0f), sum = dq(Row{i}, column);
      for (int64_t j = i - 1; j >= rows.first; --j) {
        const VF weight = w * dp.plain[i * dp.stride + j];
        sum += weight * of.k(Row{j}, column);
        set(dk, Row{j}, column, dk(Row{j}, column) + weight * q);
        w *= of.a(Row{j}, column);
      }
      set(dq, Row{i}, column, sum);
    }
  }
}

// `Entries`: Walks, or what adds to them.
template <class Words, class Entries = Walks>
class WalkEngineOf : public EngineOf<Words>, public Entries {
 public:
  using typename Entries::Span;

  // Rows of an operand, or a box of it, in its coordinates from zero. They begin at multiples of
  // 16; boxes are put from left to right: a put fills whole strips, beyond the box too.
  template <class Op>
  WEFT_INLINE static OperandPart<Words, Op::uses> part(const Op& op, Span rows) {
    OperandPart<Words, Op::uses> p(op);
    p.rows = rows.count;
    p.plain += rows.first * op.stride;
    p.left += rows.first * op.left_stride;
    p.down += rows.first / Words::kPerWord * op.down_stride;
    p.turned += rows.first;
    p.risen += rows.first / Words::kPerWord;
    return p;
  }
  template <class Op>
  WEFT_INLINE static OperandPart<Words, Op::uses> box(const Op& op, Span rows, Span columns) {
    static_assert(!Op::has_turned);
    OperandPart<Words, Op::uses> p = part(op, rows);
    p.columns = columns.count;
    p.plain += columns.first;
    p.left += columns.first / Words::kPerWord;
    p.down += columns.first;
    p.risen += columns.first * op.risen_stride;
    return p;
  }
};

using WalkEngine = WalkEngineOf<EngineWords>;

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
