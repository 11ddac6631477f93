#pragma once

#include "kernels/tile/cpu_walk.h"

// Words for two kinds of queries that meet the same keys under the same decays per channel, so that
// a product of decays is formed once for all pairs of a row with another. Include only from
// kernels/cpu/*.cc.
namespace weft::kernels::WEFT_ISA_NAMESPACE {

class PairEngine : public WalkEngine {
 public:
  static constexpr int kQueries = 2;

  // to = from^T
  template <class From, class To>
  WEFT_INLINE static void turn_over(const From& from, To& to) {
    static_assert(!To::has_turned);
    Matrix image = from;
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

template <int keys>
void PairEngine::near_scores(const Scores<keys>& s, Span rows) {
  const int64_t columns = s.a.columns;
  for (int64_t i = rows.first + 1; i < rows.first + rows.count; ++i) {
    VF sums[kNearRows][kQueries][keys] = {};
    for (int64_t c = 0; c < columns; c += kLanes) {
      VF w[kQueries];
      for (int n = 0; n < kQueries; ++n) w[n] = (*s.q[n])(Row{i}, Column{c});
      for (int64_t j = i - 1; j >= rows.first; --j) {
        const VF a = s.a(Row{j}, Column{c});
        for (int m = 0; m < keys; ++m) {
          const VF k = (*s.k[m])(Row{j}, Column{c});
          for (int n = 0; n < kQueries; ++n) sums[j - rows.first][n][m] += w[n] * k;
        }
        for (int n = 0; n < kQueries; ++n) w[n] *= a;
      }
    }
    for (int64_t j = rows.first; j < i; ++j) {
      for (int n = 0; n < kQueries; ++n) {
        for (int m = 0; m < keys; ++m) {
          s.p[n][m]->plain[j * s.p[n][m]->stride + i] = sum(sums[j - rows.first][n][m]);
        }
      }
    }
  }
}

template <int keys>
void PairEngine::near_gradients(const ScoreGradients<keys>& s, Span rows) {
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

}  // namespace weft::kernels::WEFT_ISA_NAMESPACE
