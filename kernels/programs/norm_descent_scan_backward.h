#pragma once

#include "kernels/programs/norm_descent_scan.h"

// Backward of programs/norm_descent_scan.h, one piece. (G, g) are the gradients of (M_C, n_C) when
// it begins and of (M, n) when it ends; (B, b) those of the anchor. P = tril(s Q K^T) + tril(1):
//   dP = tril(dO U^T)      dQ = s (dO M^T + dP K)
//   dU = P^T dO + K G + g  deta_i = -r_i dU_i . H_i,   dH = -diag(eta r) dU
//   dE = dH - mean(dH) - Zh mean(dH Zh),   dR = dE w         (R = w Zh + c - V + K)
//   dw += sum of rows dE (R + w Zh),  dc += sum of rows dR,  dV = -dR
//   dZh = w dR - mean(E Zh) dH - E mean(dH Zh)
//   dZ = r (dZh - mean(dZh) - Zh mean(dZh Zh)) + Zh eta r^2 (dU . H) / d
//   dK = U G^T + s dP^T Q + dZ A^T + dR
//   G += s Q^T dO,  g += sum of rows dO,   B += K^T dZ,  b += sum of rows dZ
namespace weft::kernels::programs {

template <class Engine>
struct NormDescentGradients {
  typename Engine::In d_out;
  typename Engine::Out dq, dk, dv;
  typename Engine::OutVector d_eta;
};

template <class Engine, class S>
struct NormDescentBackwardSpace {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::width, &S::width, tile::kB | tile::kBt> dm;
  Op<&S::width, &S::width, tile::kB> d_anchor;
  Vec<&S::width> dn, d_anchor_n, dw, dc;
  Op<&S::width, &S::width, tile::kB | tile::kBt> m, anchor;
  Vec<&S::width> n, anchor_n, w, c;
  Op<&S::chunk, &S::width, tile::kA | tile::kAt | tile::kB> q;  // times s
  Op<&S::chunk, &S::width, tile::kA | tile::kAt | tile::kB | tile::kBt> k;
  Op<&S::chunk, &S::width, tile::kB> z, e, dh, dr;
  Op<&S::chunk, &S::width, tile::kA | tile::kBt> u;
  Op<&S::chunk, &S::width, tile::kA | tile::kB> d_out, dz;
  Op<&S::chunk, &S::chunk, tile::kAt> p;
  Op<&S::chunk, &S::chunk, tile::kA | tile::kAt> dp;
  Vec<&S::chunk> eta, mean, inv, mean_e, mean_ez;
  Vec<&S::chunk> along, mean_dh, mean_dhz, mean_dz, mean_dzz;  // along: dU . H

  template <class F>
  void parts(F f) {
    f(dm), f(d_anchor), f(dn), f(d_anchor_n), f(dw), f(dc), f(m), f(anchor), f(n), f(anchor_n);
    f(w), f(c), f(q), f(k), f(z), f(e), f(dh), f(dr), f(u), f(d_out), f(dz), f(p), f(dp);
    f(eta), f(mean), f(inv), f(mean_e), f(mean_ez);
    f(along), f(mean_dh), f(mean_dhz), f(mean_dz), f(mean_dzz);
  }
};

// From w.dm, w.dn (of the weights behind the piece) to w.dz, through U and the loss; dV, deta, dw,
// dc.
template <class Engine, class Space>
WEFT_TILE void norm_descent_loss_backward(Engine& e, const NormDescentPiece<Engine>& a,
                                          const NormDescentGradients<Engine>& g, Space& w) {
  using namespace tile;
  const float share = 1.0f / a.width;
  set_zero(e, w.along), set_zero(e, w.mean_dh), set_zero(e, w.mean_dhz);
  set_zero(e, w.mean_dz), set_zero(e, w.mean_dzz);
  const auto read_at = [&](auto i, auto j) {  // H
    return w.e(i, j) - w.mean_e[i] - w.z(i, j) * w.mean_ez[i];
  };
  e.run(kFull, nn(w.k, w.dm), map([&](auto, auto j, auto x) { return x + w.dn[j]; }),
        tn(w.p, w.d_out, Banded::kA, kLower),
        row_sum(w.along, [&](auto i, auto j, auto x) { return x * read_at(i, j); }),
        map([&](auto i, auto, auto x) { return -w.eta[i] * w.inv[i] * x; }), put(w.dh),
        row_sum(w.mean_dh),
        row_sum(w.mean_dhz, [&](auto i, auto j, auto x) { return x * w.z(i, j); }));
  e.fill(w.mean_dh, [&](auto i) { return w.mean_dh[i] * share; });
  e.fill(w.mean_dhz, [&](auto i) { return w.mean_dhz[i] * share; });
  e.run(kFull, take(w.dh),
        map([&](auto i, auto j, auto x) { return x - w.mean_dh[i] - w.z(i, j) * w.mean_dhz[i]; }),
        column_sum(w.dw,
                   [&](auto i, auto j, auto x) {
                     return x *
                            (2.0f * (w.w[j] * w.z(i, j)) + w.c[j] - e.at(a.v, i, j) + w.k(i, j));
                   }),
        map([&](auto, auto j, auto x) { return x * w.w[j]; }), column_sum(w.dc),
        store(g.dv, [&](auto, auto, auto x) { return -x; }), put(w.dr),
        map([&](auto i, auto j, auto x) {
          return x * w.w[j] - w.mean_ez[i] * w.dh(i, j) - w.e(i, j) * w.mean_dhz[i];
        }),
        put(w.dz), row_sum(w.mean_dz),
        row_sum(w.mean_dzz, [&](auto i, auto j, auto x) { return x * w.z(i, j); }));
  e.fill(w.mean_dz, [&](auto i) { return w.mean_dz[i] * share; });
  // Zh enters dZ with one number per row, from its own norm and from r in U.
  e.fill(w.mean_dzz, [&](auto i) {
    return w.inv[i] * share * (w.eta[i] * w.inv[i] * w.along[i] - w.mean_dzz[i]);
  });
  e.run(kFull, take(w.dz), map([&](auto i, auto j, auto x) {
          return w.inv[i] * (x - w.mean_dz[i]) + w.z(i, j) * w.mean_dzz[i];
        }),
        put(w.dz));
  e.fill(w.along, [&](auto i) { return -w.inv[i] * w.along[i]; });
  e.save(w.along, g.d_eta);
}

// dK but for what goes through Z is the same for both kinds of anchors.
template <class Engine, class Space, class State>
WEFT_TILE void norm_descent_keys(Engine& e, const NormDescentGradients<Engine>& g,
                                 const State& anchor, Space& w) {
  using namespace tile;
  e.run(kFull, nt(w.u, w.dm), tn(w.dp, w.q, Banded::kA, kLower), nt(w.dz, anchor),
        map([&](auto i, auto j, auto x) { return x + w.dr(i, j); }), store(g.dk));
}

// With w.m, w.n (and w.anchor, w.anchor_n unless fresh) as before the piece.
template <class Engine, class Space>
WEFT_TILE void norm_descent_backward(Engine& e, const NormDescentPiece<Engine>& a,
                                     const NormDescentGradients<Engine>& g, Space& w) {
  using namespace tile;
  norm_descent_updates(e, a, w);
  norm_descent_scores(e, a, w);
  e.load(w.d_out, g.d_out);
  norm_descent_loss_backward(e, a, g, w);
  e.run(kLower, nt(w.d_out, w.u),
        map([&](auto i, auto j, auto x) { return e.select(e.inside(kLower, i, j), x, 0.0f); }),
        put(w.dp));
  e.run(kFull, nt(w.d_out, w.m), nn(w.dp, w.k, Banded::kA, kLower),
        store(g.dq, [&](auto, auto, auto x) { return x * a.scale; }));
  e.run(kFull, take(w.d_out), column_sum(w.dn));
  e.run(kFull, take(w.dz), column_sum(w.d_anchor_n));
  if (a.fresh) {
    // The anchor is a copy of the weights: its gradient is added to theirs.
    norm_descent_keys(e, g, w.m, w);
    e.run(kFull, take(w.dm), tn(w.q, w.d_out), tn(w.k, w.dz),
          map([&](auto i, auto j, auto x) { return x + w.d_anchor(i, j); }), put(w.dm));
    e.fill(w.dn, [&](auto j) { return w.dn[j] + w.d_anchor_n[j]; });
  } else {
    norm_descent_keys(e, g, w.anchor, w);
    e.run(kFull, take(w.dm), tn(w.q, w.d_out), put(w.dm));
    e.run(kFull, take(w.d_anchor), tn(w.k, w.dz), put(w.d_anchor));
  }
}

}  // namespace weft::kernels::programs
