#pragma once

#include "kernels/tile/cpu.h"

// Words for decays that differ from channel to channel: parts of operands, walks along the rows of
// every column, and pairs of rows of one block. A decay between two rows is the product of the
// decays in between, never a quotient: all factors are <= 1, so nothing overflows, and what
// underflows is zero. Include only from kernels/cpu/*.cc.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

// Rows of an operand, or a box of it, in its coordinates from zero. Boxes begin at multiples of 16
// and are put from left to right: a put fills whole strips, beyond the box too.
template <unsigned uses_>
struct OperandPart : Matrix {
  static constexpr unsigned uses = uses_;
  static constexpr bool has_plain = (uses & (tile::kA | tile::kAt | tile::kB)) != 0;
  static constexpr bool has_turned = (uses & tile::kBt) != 0;
};

class WalkEngine : public Engine {
 public:
  // Rows [first, first + count) of an operand.
  struct Span {
    int64_t first, count;
  };

  template <class Op>
  WEFT_INLINE static OperandPart<Op::uses> part(const Op& op, Span rows) {
    OperandPart<Op::uses> p;
    p.rows = rows.count;
    p.columns = op.columns;
    p.plain = op.plain + rows.first * op.stride;
    p.stride = op.stride;
    p.turned = op.turned + rows.first;
    p.turned_stride = op.turned_stride;
    return p;
  }
  template <class Op>
  WEFT_INLINE static OperandPart<Op::uses> box(const Op& op, Span rows, Span columns) {
    static_assert(!Op::has_turned);
    OperandPart<Op::uses> p = part(op, rows);
    p.columns = columns.count;
    p.plain += columns.first;
    return p;
  }

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

inline void WalkEngine::near_scores(const Matrix& q, const Matrix& k, const Matrix& a, Span rows,
                                    Matrix& p) {
  for (int64_t i = rows.first + 1; i < rows.first + rows.count; ++i) {
    VF sums[kNearRows] = {};
    for (int64_t c = 0; c < q.columns; c += kLanes) {
      VF w = q(Row{i}, Column{c});
      for (int64_t j = i - 1; j >= rows.first; --j) {
        sums[j - rows.first] += w * k(Row{j}, Column{c});
        w *= a(Row{j}, Column{c});
      }
    }
    for (int64_t j = rows.first; j < i; ++j) p.plain[j * p.stride + i] = sum(sums[j - rows.first]);
  }
}

inline void WalkEngine::near_gradients(const Pairs& of, Span rows, const Matrix& dp, Matrix& dq,
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

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
