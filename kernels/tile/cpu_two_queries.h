#pragma once

#include "kernels/tile/cpu_walk.h"

// Words for two kinds of queries that meet the same keys under the same decays per channel, so that
// a product of decays is formed once for all pairs of a row with another. Include only from
// cpu/isa/*.cc.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

struct TwoQueries : Walks {
  static constexpr int kQueries = 2;

  // to = from^T
  template <class From, class To>
  WEFT_INLINE static void turn_over(const From& from, To& to) {
    static_assert(!To::has_turned && To::has_plain && From::has_plain);
    OperandPart<FloatWords<float>, tile::kBt> image(from);
    image.turned = to.plain;
    image.turned_stride = to.stride;
    fill_turned(image,
                [&](int64_t i, int64_t j) { return get_floats(from.plain + i * from.stride + j); });
  }

  // For every kind of query n and of key m, in a block of 16 rows at most:
  //   p[n][m](j, i) = sum over c of q[n](i, c) k[m](j, c) a(j + 1, c) ... a(i - 1, c),   j < i
  template <int keys>
  struct Scores {
    const Matrix* q[kQueries];
    const Matrix* k[keys];
    const Matrix& a;
    Matrix* p[kQueries][keys];
  };
  using Walks::near_scores;  // of one kind of query
  template <int keys>
  static void near_scores(const Scores<keys>& s, Span rows);

  // With dp[n][m](i, j), the gradients of such sums, and w their products of decays:
  //   dq[n](i, c) += dp[n][m](i, j) w k[m](j, c),   dk[m](j, c) += dp[n][m](i, j) w q[n](i, c)
  template <int keys>
  struct ScoreGradients {
    const Matrix* q[kQueries];
    const Matrix* k[keys];
    const Matrix& a;
    const Matrix* dp[kQueries][keys];
    Matrix* dq[kQueries];
    Matrix* dk[keys];
  };
  template <int keys>
  static void near_gradients(const ScoreGradients<keys>& s, Span rows);
};

// Row first + count against the `count` rows before it, latest first: sums stay in registers, of
// one kind of key at a time where two need too many.
template <int count, int keys>
WEFT_INLINE void near_row(const TwoQueries::Scores<keys>& s, int64_t first) {
  constexpr int kQueries = TwoQueries::kQueries;
  const int64_t i = first + count;
  for (int m = 0; m < keys; ++m) {
    VF sums[count][kQueries] = {};
    for (int64_t c = 0; c < s.a.columns; c += kLanes) {
      VF w[kQueries];
      for (int n = 0; n < kQueries; ++n) w[n] = (*s.q[n])(Row{i}, Column{c});
#pragma GCC unroll 16
      for (int64_t j = count - 1; j >= 0; --j) {
        const VF k = (*s.k[m])(Row{first + j}, Column{c});
        const VF a = s.a(Row{first + j}, Column{c});
        for (int n = 0; n < kQueries; ++n) sums[j][n] += w[n] * k, w[n] *= a;
      }
    }
    for (int n = 0; n < kQueries; ++n) {
      float* to = s.p[n][m]->plain + first * s.p[n][m]->stride + i;
#pragma GCC unroll 16
      for (int64_t j = 0; j < count; ++j) to[j * s.p[n][m]->stride] = sum(sums[j][n]);
    }
  }
}

template <int keys>
void TwoQueries::near_scores(const Scores<keys>& s, Span rows) {
  for_counts(rows, [&](auto count) { near_row<decltype(count)::value>(s, rows.first); });
}

template <int keys>
void TwoQueries::near_gradients(const ScoreGradients<keys>& s, Span rows) {
  for (int64_t c = 0; c < s.a.columns; c += kLanes) {
    const Column column{c};
    for (int64_t i = rows.first + 1; i < rows.first + rows.count; ++i) {
      VF q[kQueries], dq[kQueries], w = splat(1.0f);
      for (int n = 0; n < kQueries; ++n) {
        q[n] = (*s.q[n])(Row{i}, column);
        dq[n] = (*s.dq[n])(Row{i}, column);
      }
      for (int64_t j = i - 1; j >= rows.first; --j) {
        for (int m = 0; m < keys; ++m) {
          const VF k = w * (*s.k[m])(Row{j}, column);
          VF back{};
          for (int n = 0; n < kQueries; ++n) {
            const VF dp = splat(s.dp[n][m]->plain[i * s.dp[n][m]->stride + j]);
            dq[n] += dp * k;
            back += dp * q[n];
          }
          set(*s.dk[m], Row{j}, column, (*s.dk[m])(Row{j}, column) + w * back);
        }
        w *= s.a(Row{j}, column);
      }
      for (int n = 0; n < kQueries; ++n) set(*s.dq[n], Row{i}, column, dq[n]);
    }
  }
}

using TwoQueryEngine = WalkEngineOf<EngineWords, TwoQueries>;

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
