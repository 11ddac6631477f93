#pragma once

#include "kernels/tile/cpu_walk.h"

// Words for decays on both sides of a state: pairs of rows of one block whose weights are given,
// transposed. Include only from cpu/isa/*.cc.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

struct TwoSides : Walks {
  // out(i, c) += sum over j < i of p(j, i) v(j, c) a(j + 1, c) ... a(i, c), both in `rows`.
  static void near_reads(const Matrix& p, const Matrix& v, const Matrix& a, Span rows,
                         Matrix& out) {
    for (int64_t c = 0; c < v.columns; c += kLanes) {
      const Column column{c};
      for (int64_t i = rows.first + 1; i < rows.first + rows.count; ++i) {
        VF w = a(Row{i}, column), sum = out(Row{i}, column);
        for (int64_t j = i - 1; j >= rows.first; --j) {
          sum += w * p.plain[j * p.stride + i] * v(Row{j}, column);
          w *= a(Row{j}, column);
        }
        set(out, Row{i}, column, sum);
      }
    }
  }

  // Walks::near_gradients with the gradient of the sums transposed, dp(j, i).
  static void near_gradients_turned(const Pairs& of, Span rows, const Matrix& dp, Matrix& dq,
                                    Matrix& dk) {
    for (int64_t c = 0; c < of.q.columns; c += kLanes) {
      const Column column{c};
      for (int64_t i = rows.first + 1; i < rows.first + rows.count; ++i) {
        const VF q = of.q(Row{i}, column);
        VF w = splat(1.0f), sum = dq(Row{i}, column);
        for (int64_t j = i - 1; j >= rows.first; --j) {
          const VF weight = w * dp.plain[j * dp.stride + i];
          sum += weight * of.k(Row{j}, column);
          set(dk, Row{j}, column, dk(Row{j}, column) + weight * q);
          w *= of.a(Row{j}, column);
        }
        set(dq, Row{i}, column, sum);
      }
    }
  }
};

using TwoSidedEngine = WalkEngineOf<EngineWords, TwoSides>;

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
