#pragma once

#include <cmath>
#include <functional>
#include <vector>

// The recurrences of the mixers as plain loops in double, token by token, over one document from
// its start. Slow, and short enough to be compared with a formula by eye. Vectors are rows; per
// head a state M [dk, dv], q, k [dk], v [dv].
namespace weft::test::naive {

using Numbers = std::vector<double>;

// Rows of all heads, concatenated: q, k [tokens, heads * dk], v [tokens, heads * dv].
struct Rows {
  int64_t tokens, heads, dk, dv;
  double scale;  // of reads
  Numbers q, k, v;
};
inline size_t at(int64_t i) { return static_cast<size_t>(i); }

// The vectors of one token and head.
struct Here {
  const Rows& rows;
  int64_t t, h;
  double q(int64_t i) const { return rows.scale * rows.q[at((t * rows.heads + h) * rows.dk + i)]; }
  double k(int64_t i) const { return rows.k[at((t * rows.heads + h) * rows.dk + i)]; }
  double v(int64_t j) const { return rows.v[at((t * rows.heads + h) * rows.dv + j)]; }
  // Gates with one number per head, and with `width`.
  double one(const Numbers& gate) const { return gate[at(t * rows.heads + h)]; }
  double of(const Numbers& gate, int64_t width, int64_t i) const {
    return gate[at((t * rows.heads + h) * width + i)];
  }
};

// A matrix of a head, zero at the start.
struct Matrix {
  int64_t rows, columns;
  Numbers x = Numbers(at(rows * columns));
  double& operator()(int64_t i, int64_t j) { return x[at(i * columns + j)]; }
};

// step(here, M, o): writes M, reads o [dv].
inline Numbers walk(const Rows& rows,
                    const std::function<void(const Here&, Matrix&, double*)>& step) {
  Numbers out(at(rows.tokens * rows.heads * rows.dv));
  for (int64_t h = 0; h < rows.heads; ++h) {
    Matrix m{rows.dk, rows.dv};
    for (int64_t t = 0; t < rows.tokens; ++t) {
      step({rows, t, h}, m, out.data() + (t * rows.heads + h) * rows.dv);
    }
  }
  return out;
}
inline void read(const Here& x, Matrix& m, double* o) {
  for (int64_t i = 0; i < m.rows; ++i) {
    for (int64_t j = 0; j < m.columns; ++j) o[j] += x.q(i) * m(i, j);
  }
}

// M = e^{g} . M + k^T v,  o = s q M;  g(here, i, j) for every place of the state.
using LogDecay = std::function<double(const Here&, int64_t, int64_t)>;
inline Numbers decayed(const Rows& rows, const LogDecay& g) {
  return walk(rows, [&](const Here& x, Matrix& m, double* o) {
    for (int64_t i = 0; i < m.rows; ++i) {
      for (int64_t j = 0; j < m.columns; ++j) {
        m(i, j) = std::exp(g(x, i, j)) * m(i, j) + x.k(i) * x.v(j);
      }
    }
    read(x, m, o);
  });
}

// M = (I - b k^T k) diag(e^{g}) M + b k^T v, b per head;  g(here, i, 0).
inline Numbers delta(const Rows& rows, const Numbers& beta, const LogDecay& g) {
  return walk(rows, [&](const Here& x, Matrix& m, double* o) {
    for (int64_t j = 0; j < m.columns; ++j) {
      double seen = 0;
      for (int64_t i = 0; i < m.rows; ++i) {
        m(i, j) *= std::exp(g(x, i, 0));
        seen += x.k(i) * m(i, j);
      }
      for (int64_t i = 0; i < m.rows; ++i) m(i, j) += x.one(beta) * x.k(i) * (x.v(j) - seen);
    }
    read(x, m, o);
  });
}

// M = diag(e^{g}) M + b^T (a M) + k^T v, all but v per key channel.
inline Numbers rank_one(const Rows& rows, const Numbers& g, const Numbers& alpha,
                        const Numbers& beta) {
  return walk(rows, [&](const Here& x, Matrix& m, double* o) {
    for (int64_t j = 0; j < m.columns; ++j) {
      double seen = 0;
      for (int64_t i = 0; i < m.rows; ++i) seen += x.of(alpha, m.rows, i) * m(i, j);
      for (int64_t i = 0; i < m.rows; ++i) {
        m(i, j) =
            std::exp(x.of(g, m.rows, i)) * m(i, j) + x.of(beta, m.rows, i) * seen + x.k(i) * x.v(j);
      }
    }
    read(x, m, o);
  });
}

// RWKV-6: o = s (q M_before + (q . u . k) v), then M = diag(e^{g}) M + k^T v;  u [heads * dk].
inline Numbers bonus(const Rows& rows, const Numbers& g, const Numbers& u) {
  return walk(rows, [&](const Here& x, Matrix& m, double* o) {
    read(x, m, o);
    for (int64_t i = 0; i < m.rows; ++i) {
      for (int64_t j = 0; j < m.columns; ++j) {
        o[j] += x.q(i) * u[at(x.h * m.rows + i)] * x.k(i) * x.v(j);
        m(i, j) = std::exp(x.of(g, m.rows, i)) * m(i, j) + x.k(i) * x.v(j);
      }
    }
  });
}

// GateLoop: M = diag(e^{g + i p}) M + k^T v, complex;  o = s Re(q M).
inline Numbers complex_decay(const Rows& rows, const Numbers& g, const Numbers& phase) {
  Matrix imaginary{rows.dk, rows.dv};
  return walk(rows, [&](const Here& x, Matrix& real, double* o) {
    if (x.t == 0) imaginary = {rows.dk, rows.dv};
    for (int64_t i = 0; i < real.rows; ++i) {
      const double size = std::exp(x.of(g, real.rows, i)), p = x.of(phase, real.rows, i);
      for (int64_t j = 0; j < real.columns; ++j) {
        const double re = real(i, j), im = imaginary(i, j);
        real(i, j) = size * (std::cos(p) * re - std::sin(p) * im) + x.k(i) * x.v(j);
        imaginary(i, j) = size * (std::sin(p) * re + std::cos(p) * im);
      }
    }
    read(x, real, o);
  });
}

// Titans: S = eta S - theta k^T (k A - v),  M = (1 - alpha) M + S, where A is M as it was when the
// mini-batch of the token began. TTT is eta = alpha = 0.
inline Numbers momentum(const Rows& rows, const Numbers& theta, const Numbers& alpha,
                        const Numbers& eta, int64_t mini_batch = 1) {
  Matrix s{rows.dk, rows.dv}, then{rows.dk, rows.dv};
  return walk(rows, [&](const Here& x, Matrix& m, double* o) {
    if (x.t == 0) s = {rows.dk, rows.dv};
    if (x.t % mini_batch == 0) then = m;
    for (int64_t j = 0; j < m.columns; ++j) {
      double error = -x.v(j);
      for (int64_t i = 0; i < m.rows; ++i) error += x.k(i) * then(i, j);
      for (int64_t i = 0; i < m.rows; ++i) {
        s(i, j) = x.one(eta) * s(i, j) - x.one(theta) * x.k(i) * error;
        m(i, j) = (1 - x.one(alpha)) * m(i, j) + s(i, j);
      }
    }
    read(x, m, o);
  });
}

// GSA: slots that forget, K = diag(a) K + w^T k, V = diag(a) V + w^T v with w = 1 - a, a = e^{g};
// o = softmax(s K q) V.
inline Numbers slots(const Rows& rows, const Numbers& g, int64_t count) {
  Matrix keys{count, rows.dk}, values{count, rows.dv};
  return walk(rows, [&](const Here& x, Matrix&, double* o) {
    if (x.t == 0) keys = {count, rows.dk}, values = {count, rows.dv};
    Numbers weight(at(count));
    double total = 0;
    for (int64_t n = 0; n < count; ++n) {
      const double a = std::exp(x.of(g, count, n));
      double score = 0;
      for (int64_t i = 0; i < rows.dk; ++i) {
        keys(n, i) = a * keys(n, i) + (1 - a) * x.k(i);
        score += x.q(i) * keys(n, i);
      }
      for (int64_t j = 0; j < rows.dv; ++j) values(n, j) = a * values(n, j) + (1 - a) * x.v(j);
      total += weight[at(n)] = std::exp(score);
    }
    for (int64_t n = 0; n < count; ++n) {
      for (int64_t j = 0; j < rows.dv; ++j) o[j] += weight[at(n)] / total * values(n, j);
    }
  });
}

// mLSTM without its stabilizer: C = f C + e^{i} k^T v, n = f n + e^{i} k, f = sigmoid;
// o = s q C / max(|s q . n|, 1).
inline Numbers mlstm(const Rows& rows, const Numbers& input, const Numbers& forget) {
  Numbers n;
  return walk(rows, [&](const Here& x, Matrix& c, double* o) {
    if (x.t == 0) n.assign(at(rows.dk), 0.0);
    const double keep = 1 / (1 + std::exp(-x.one(forget))), write = std::exp(x.one(input));
    double sum = 0;
    for (int64_t i = 0; i < c.rows; ++i) {
      n[at(i)] = keep * n[at(i)] + write * x.k(i);
      sum += x.q(i) * n[at(i)];
      for (int64_t j = 0; j < c.columns; ++j) {
        c(i, j) = keep * c(i, j) + write * x.k(i) * x.v(j);
      }
    }
    read(x, c, o);
    for (int64_t j = 0; j < c.columns; ++j) o[j] /= std::max(std::abs(sum), 1.0);
  });
}

// Normalized weights over all tokens so far: o_t = sum_u w(q_t . k_u) v_u / (sum_u w + epsilon).
inline Numbers attend(const Rows& rows, const std::function<double(double)>& weight,
                      double epsilon) {
  return walk(rows, [&](const Here& x, Matrix&, double* o) {
    double total = epsilon;
    for (int64_t u = 0; u <= x.t; ++u) {
      const Here then{rows, u, x.h};
      double score = 0;
      for (int64_t i = 0; i < rows.dk; ++i) score += x.q(i) * then.k(i);
      total += weight(score);
      for (int64_t j = 0; j < rows.dv; ++j) o[j] += weight(score) * then.v(j);
    }
    for (int64_t j = 0; j < rows.dv; ++j) o[j] /= total;
  });
}

// y = x W^T (+ bias): x [rows, in], W [out, in].
inline Numbers project(const Numbers& x, const Numbers& w, int64_t in, const Numbers& bias = {}) {
  const int64_t count = static_cast<int64_t>(x.size()) / in;
  const int64_t out = static_cast<int64_t>(w.size()) / in;
  Numbers y(at(count * out));
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t o = 0; o < out; ++o) {
      double sum = bias.empty() ? 0.0 : bias[at(o)];
      for (int64_t i = 0; i < in; ++i) sum += x[at(r * in + i)] * w[at(o * in + i)];
      y[at(r * out + o)] = sum;
    }
  }
  return y;
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double silu(double x) { return x * sigmoid(x); }
inline double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
inline double log_sigmoid(double x) { return -softplus(-x); }

template <class F>
Numbers map(Numbers x, F f) {
  for (double& value : x) value = f(value);
  return x;
}
// Every run of `width` numbers divided by the root of the mean, or with `sum` the sum, of their
// squares.
enum class Of : uint8_t { kMean, kSum };
inline Numbers normalized(Numbers x, int64_t width, double epsilon, Of of) {
  for (size_t begin = 0; begin < x.size(); begin += at(width)) {
    double squares = 0;
    for (size_t i = begin; i < begin + at(width); ++i) squares += x[i] * x[i];
    if (of == Of::kMean) squares /= static_cast<double>(width);
    for (size_t i = begin; i < begin + at(width); ++i) x[i] /= std::sqrt(squares + epsilon);
  }
  return x;
}

}  // namespace weft::test::naive
