#pragma once

#include "kernels/tile/steps.h"

// Descent whose loss has a LayerNorm inside (TTT), C tokens of one mini-batch of one head (Q, K, V
// [C, d]; vectors are rows). (M, n) are the weights before the tokens, (A, a) those that the
// mini-batch found, at which all its gradients are taken:
//   Z = K A + a,   Zh = (Z - mean) / sqrt(var + eps)            per row
//   E = (w Zh + c - (V - K)) w                                  the loss' gradient at the norm
//   H = E - mean(E) - Zh mean(E Zh),   U = -diag(eta r) H       r = 1 / sqrt(var + eps)
//   O = s Q M + n + (tril(s Q K^T) + tril(1)) U
//   M_C = M + K^T U,   n_C = n + sum of the rows of U
// Nothing here is affine in the state: spans have no summary. The tokens of a mini-batch are as
// independent of each other as those of a chunk.
namespace weft::kernels::programs {

template <class Engine>
struct NormDescentPiece {
  typename Engine::In q, k, v;
  typename Engine::InVector eta;
  float scale = 1.0f, epsilon = 0.0f, width = 0.0f;  // width: d
  bool fresh = false;                                // A is M: these tokens begin a mini-batch
};

// S: chunk(), width(). What outlives a piece comes first.
template <class Engine, class S>
struct NormDescentSpace {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::width, &S::width, tile::kB> m, anchor;
  Vec<&S::width> n, anchor_n, w, c;
  Op<&S::chunk, &S::width, tile::kA> q;  // times s
  Op<&S::chunk, &S::width, tile::kA | tile::kAt | tile::kBt> k;
  Op<&S::chunk, &S::width, tile::kB> z, e, u;
  Op<&S::chunk, &S::chunk, tile::kA> p;
  Vec<&S::chunk> eta, mean, inv, mean_e, mean_ez;

  template <class F>
  void parts(F f) {
    f(m), f(anchor), f(n), f(anchor_n), f(w), f(c), f(q), f(k), f(z), f(e), f(u), f(p);
    f(eta), f(mean), f(inv), f(mean_e), f(mean_ez);
  }
};

template <class Engine, class Vec>
WEFT_TILE void set_zero(Engine& e, Vec& v) {
  e.fill(v, [&](auto) { return e.number(0.0f); });
}

// Z of the weights (m, n), then what the loss makes of it: w.z = Zh, w.e = E, w.u = U, and the
// numbers per row.
template <class Engine, class Space, class State, class Bias>
WEFT_TILE void norm_descent_loss(Engine& e, const NormDescentPiece<Engine>& a, const State& m,
                                 const Bias& n, Space& w) {
  using namespace tile;
  const float share = 1.0f / a.width;
  set_zero(e, w.mean), set_zero(e, w.inv), set_zero(e, w.mean_e), set_zero(e, w.mean_ez);
  e.run(kFull, nn(w.k, m), map([&](auto, auto j, auto x) { return x + n[j]; }), put(w.z),
        row_sum(w.mean));
  e.fill(w.mean, [&](auto i) { return w.mean[i] * share; });
  e.run(kFull, take(w.z), map([&](auto i, auto, auto x) { return x - w.mean[i]; }), put(w.z),
        row_sum(w.inv, [&](auto, auto, auto x) { return x * x; }));
  e.fill(w.inv, [&](auto i) { return e.inv_sqrt(w.inv[i] * share + a.epsilon); });
  e.run(kFull, take(w.z), map([&](auto i, auto, auto x) { return x * w.inv[i]; }), put(w.z),
        map([&](auto i, auto j, auto x) {
          return (w.w[j] * x + w.c[j] - e.at(a.v, i, j) + w.k(i, j)) * w.w[j];
        }),
        put(w.e), row_sum(w.mean_e),
        row_sum(w.mean_ez, [&](auto i, auto j, auto x) { return x * w.z(i, j); }));
  e.fill(w.mean_e, [&](auto i) { return w.mean_e[i] * share; });
  e.fill(w.mean_ez, [&](auto i) { return w.mean_ez[i] * share; });
  e.run(kFull, take(w.e), map([&](auto i, auto j, auto x) {
          return -w.eta[i] * w.inv[i] * (x - w.mean_e[i] - w.z(i, j) * w.mean_ez[i]);
        }),
        put(w.u));
}

template <class Engine, class Space>
WEFT_TILE void norm_descent_updates(Engine& e, const NormDescentPiece<Engine>& a, Space& w) {
  e.load(w.eta, a.eta);
  e.load(w.k, a.k);
  if (a.fresh) {
    norm_descent_loss(e, a, w.m, w.n, w);
  } else {
    norm_descent_loss(e, a, w.anchor, w.anchor_n, w);
  }
}

// (w.m, w.n) moved from before the piece to behind it.
template <class Engine, class Space>
WEFT_TILE void norm_descent_state(Engine& e, Space& w) {
  using namespace tile;
  e.run(kFull, take(w.u), column_sum(w.n));
  e.run(kFull, take(w.m), tn(w.k, w.u), put(w.m));
}

// The weights become the anchor: a mini-batch that this piece began goes on behind it.
template <class Engine, class Space>
WEFT_TILE void norm_descent_anchor(Engine& e, Space& w) {
  using namespace tile;
  e.run(kFull, take(w.m), put(w.anchor));
  e.fill(w.anchor_n, [&](auto j) { return w.n[j]; });
}

// s Q K^T + 1 for i >= j.
template <class Engine, class Space>
WEFT_TILE void norm_descent_scores(Engine& e, const NormDescentPiece<Engine>& a, Space& w) {
  using namespace tile;
  e.load(w.q, a.q, [&](auto, auto, auto x) { return x * a.scale; });
  e.run(kLower, nt(w.q, w.k), map([&](auto i, auto j, auto x) {
          return e.select(e.inside(kLower, i, j), x + 1.0f, 0.0f);
        }),
        put(w.p));
}

template <class Engine, class Space>
WEFT_TILE void norm_descent_forward(Engine& e, const NormDescentPiece<Engine>& a,
                                    const typename Engine::Out& out, Space& w) {
  using namespace tile;
  norm_descent_updates(e, a, w);
  norm_descent_scores(e, a, w);
  e.run(kFull, nn(w.q, w.m), map([&](auto, auto j, auto x) { return x + w.n[j]; }),
        nn(w.p, w.u, Banded::kA, kLower), store(out));
  norm_descent_state(e, w);
}

}  // namespace weft::kernels::programs
