#pragma once

#include "kernels/programs/momentum_scan.h"

// Backward of programs/momentum_scan.h, one chunk. dM, dS, dA are gradients of the states behind
// the chunk when it begins and of those before it when it ends; dO is scaled by s when it is
// loaded, P = (Q K^T) * G_o:
//   dE = P^T dO + diag(G_C) K dM + diag(H_C) K dS + diag(G_a) K dA        X = T^T dE,   dV = X
//   W = (dO E^T) * G_o  (j <= i),   Y = -(X E^T) * G_r  (j < r(i))
//   dQ = diag(b_o) dO M^T + diag(f_o) dO S^T + W K
//   dK = -diag(b_r) X M^T - diag(f_r) X S^T - diag(before) X A^T  + Y K               (reading)
//        + diag(G_C) E dM^T + diag(H_C) E dS^T + diag(G_a) E dA^T + W^T Q + Y^T K     (writing)
//   dM <- b_C dM + b_a dA + Q^T diag(b_o) dO - K^T diag(b_r) X,   dS likewise with f, and p_C dS
// Gradients of the coefficients are dots of rows of these products, and (dO E^T) * (Q K^T),
// -(X E^T) * (K K^T) for G; the driver takes them back through the recurrences to the gates.
namespace weft::kernels::programs {

template <class Engine>
struct MomentumChunkGradients {
  typename Engine::In d_out;
  typename Engine::In m, s, a;  // the states before the chunk
  typename Engine::Out dq, dk, dv;
  // Gradients of the coefficients: G_o, G_r [C, C]; per token b_o, f_o, b_r, f_r and rows of G and
  // H; and those at the end: b, f, p, and b and f at the state that becomes A.
  typename Engine::Out d_out_g, d_read_g;
  typename Engine::OutVector b_out, f_out, b_read, f_read, to_m, to_s, to_a;
  float b = 0, f = 0, p = 0, b_a = 0, f_a = 0;
};

template <class Engine, class S>
struct MomentumBackwardSpace {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::key, &S::value, tile::kB | tile::kBt> dm, ds, da;
  Op<&S::key, &S::value, tile::kB | tile::kBt> m, s, a;
  Op<&S::chunk, &S::key, tile::kA | tile::kAt | tile::kB | tile::kBt> k;
  Op<&S::chunk, &S::key, tile::kA | tile::kAt | tile::kB> q;
  Op<&S::chunk, &S::key, tile::kA> by_m, by_s, by_a;
  Op<&S::chunk, &S::key, tile::kB> dq, dk;
  Op<&S::chunk, &S::chunk, tile::kA | tile::kAt> t, p, y;
  Op<&S::chunk, &S::value, tile::kA | tile::kB | tile::kBt> e;
  Op<&S::chunk, &S::value, tile::kB> r, e_m, e_s, e_a, de;
  Op<&S::chunk, &S::value, tile::kA | tile::kB> d_out, x;
  Op<&S::chunk, &S::value, tile::kB> d_m, d_s, x_m, x_s, x_a;  // dO and X, weighted
  Vec<&S::chunk> b_read, f_read, before, b_out, f_out, to_m, to_s, to_a;
  Vec<&S::chunk> dots;
  Vec<&S::key> product;

  template <class F>
  void parts(F f) {
    f(dm), f(ds), f(da), f(m), f(s), f(a), f(k), f(q), f(by_m), f(by_s), f(by_a), f(dq), f(dk);
    f(t), f(p), f(y), f(e), f(r), f(e_m), f(e_s), f(e_a), f(de), f(d_out), f(x);
    f(d_m), f(d_s), f(x_m), f(x_s), f(x_a);
    f(b_read), f(f_read), f(before), f(b_out), f(f_out), f(to_m), f(to_s), f(to_a), f(dots);
    f(product);
  }
};

template <class Engine, class Space>
WEFT_TILE void no_dots(Engine& e, Space& w) {
  e.fill(w.dots, [&](auto) { return e.number(0.0f); });
}

// <a, b> of two states.
template <class Engine, class Space, class Op>
WEFT_TILE float state_product(Engine& e, const Op& a, const Op& b, Space& w) {
  using namespace tile;
  e.fill(w.product, [&](auto) { return e.number(0.0f); });
  e.run(kFull, take(a), row_sum(w.product, [&](auto i, auto j, auto x) { return x * b(i, j); }));
  return e.total(w.product);
}

// X, from the outputs and the states behind the chunk, and its weighted copies.
template <Momentum momentum, class Engine, class Space>
WEFT_TILE void momentum_errors_backward(Engine& e, const MomentumChunk<Engine>& a,
                                        const MomentumChunkGradients<Engine>& g, Space& w) {
  using namespace tile;
  e.load(w.q, a.q);
  e.load(w.d_out, g.d_out, [&](auto, auto, auto x) { return x * a.scale; });
  e.run(kLower, nt(w.q, w.k), map([&](auto i, auto j, auto x) {
          return e.select(e.inside(kLower, i, j), x * e.at(a.out, i, j), 0.0f);
        }),
        put(w.p));
  e.load(w.by_m, a.k, [&](auto i, auto, auto x) { return x * w.to_m[i]; });
  e.run(kFull, tn(w.p, w.d_out, Banded::kA, kLower), nn(w.by_m, w.dm), put(w.de));
  if constexpr (momentum == Momentum::kYes) {
    e.load(w.by_s, a.k, [&](auto i, auto, auto x) { return x * w.to_s[i]; });
    e.run(kFull, nn(w.by_s, w.ds), map([&](auto i, auto j, auto x) { return x + w.de(i, j); }),
          put(w.de));
  }
  if (a.moves_anchor) {
    e.load(w.by_a, a.k, [&](auto i, auto, auto x) { return x * w.to_a[i]; });
    e.run(kFull, nn(w.by_a, w.da), map([&](auto i, auto j, auto x) { return x + w.de(i, j); }),
          put(w.de));
  }
  e.run(kFull, tn(w.t, w.de, Banded::kA, kLower), store(g.dv), put(w.x),
        put(w.x_m, [&](auto i, auto, auto x) { return -x * w.b_read[i]; }),
        put(w.x_s, [&](auto i, auto, auto x) { return -x * w.f_read[i]; }),
        put(w.x_a, [&](auto i, auto, auto x) { return -x * w.before[i]; }));
  e.run(kFull, take(w.d_out), put(w.d_m, [&](auto i, auto, auto x) { return x * w.b_out[i]; }),
        put(w.d_s, [&](auto i, auto, auto x) { return x * w.f_out[i]; }));
}

// The coefficients' part of a product with a state, and what it adds, weighted, to a gradient.
template <class Engine, class Space, class Left, class State, class Rows, class Weights, class To>
WEFT_TILE void momentum_part(Engine& e, const Left& left, const State& state, const Rows& rows,
                             const Weights& weights, float sign, To& to,
                             const typename Engine::OutVector& dots, Space& w) {
  using namespace tile;
  no_dots(e, w);
  e.run(kFull, nt(left, state),
        row_sum(w.dots, [&](auto i, auto j, auto x) { return x * (rows(i, j) * sign); }),
        map([&](auto i, auto j, auto x) { return to(i, j) + x * (weights[i] * sign); }), put(to));
  e.save(w.dots, dots);
}

// dQ, dK and the gradients of the coefficients.
template <Momentum momentum, class Engine, class Space>
WEFT_TILE void momentum_keys_backward(Engine& e, const MomentumChunk<Engine>& a,
                                      MomentumChunkGradients<Engine>& g, Space& w) {
  using namespace tile;
  e.load(w.dq, typename Engine::In{});
  e.load(w.dk, typename Engine::In{});
  momentum_part(e, w.d_out, w.m, w.q, w.b_out, 1.0f, w.dq, g.b_out, w);
  momentum_part(e, w.x, w.m, w.k, w.b_read, -1.0f, w.dk, g.b_read, w);
  momentum_part(e, w.e, w.dm, w.k, w.to_m, 1.0f, w.dk, g.to_m, w);
  if constexpr (momentum == Momentum::kYes) {
    momentum_part(e, w.d_out, w.s, w.q, w.f_out, 1.0f, w.dq, g.f_out, w);
    momentum_part(e, w.x, w.s, w.k, w.f_read, -1.0f, w.dk, g.f_read, w);
    momentum_part(e, w.e, w.ds, w.k, w.to_s, 1.0f, w.dk, g.to_s, w);
  }
  if (a.reads_anchor) momentum_part(e, w.x, w.a, w.k, w.before, -1.0f, w.dk, {}, w);
  if (a.moves_anchor) momentum_part(e, w.e, w.da, w.k, w.to_a, 1.0f, w.dk, g.to_a, w);

  // Scores: gradients of G first, which need them without their weights.
  e.run(kLower, nt(w.q, w.k), put(w.p));
  e.run(kBelow, nt(w.k, w.k), put(w.y));
  e.run(kLower, nt(w.d_out, w.e),
        store(g.d_out_g, [&](auto i, auto j, auto x) { return x * w.p(i, j); }),
        map([&](auto i, auto j, auto x) {
          return e.select(e.inside(kLower, i, j), x * e.at(a.out, i, j), 0.0f);
        }),
        put(w.p));
  e.run(kBelow, nt(w.x, w.e),
        store(g.d_read_g, [&](auto i, auto j, auto x) { return -x * w.y(i, j); }),
        map([&](auto i, auto j, auto x) {
          return e.select(e.inside(kBelow, i, j), -x * e.at(a.read, i, j), 0.0f);
        }),
        put(w.y));
  e.run(kFull, nn(w.p, w.k, Banded::kA, kLower),
        map([&](auto i, auto j, auto x) { return x + w.dq(i, j); }), store(g.dq));
  e.run(kFull, tn(w.p, w.q, Banded::kA, kLower), nn(w.y, w.k, Banded::kA, kBelow),
        tn(w.y, w.k, Banded::kA, kBelow),
        map([&](auto i, auto j, auto x) { return x + w.dk(i, j); }), store(g.dk));
}

// Gradients of the states before the chunk.
template <Momentum momentum, class Engine, class Space>
WEFT_TILE void momentum_states_backward(Engine& e, const MomentumChunk<Engine>& a, Space& w) {
  using namespace tile;
  // A new A is made of M and S; otherwise A passes.
  const float b_a = a.moves_anchor ? a.b_a : 0.0f, f_a = a.moves_anchor ? a.f_a : 0.0f;
  if constexpr (momentum == Momentum::kYes) {
    e.run(kFull, take(w.ds), map([&](auto i, auto j, auto x) {
            return x * a.p + w.dm(i, j) * a.f + w.da(i, j) * f_a;
          }),
          tn(w.q, w.d_s), tn(w.k, w.x_s), put(w.ds));
  }
  e.run(kFull, take(w.dm), map([&](auto i, auto j, auto x) { return x * a.b + w.da(i, j) * b_a; }),
        tn(w.q, w.d_m), tn(w.k, w.x_m), put(w.dm));
  if (a.moves_anchor) e.load(w.da, typename Engine::In{});
  if (a.reads_anchor) e.run(kFull, take(w.da), tn(w.k, w.x_a), put(w.da));
}

template <Momentum momentum, class Engine, class Space>
WEFT_TILE void momentum_backward(Engine& e, const MomentumChunk<Engine>& a,
                                 MomentumChunkGradients<Engine>& g, Space& w) {
  constexpr bool has_s = momentum == Momentum::kYes;
  e.load(w.m, g.m);
  if constexpr (has_s) e.load(w.s, g.s);
  if (a.reads_anchor) e.load(w.a, g.a);
  momentum_weights(e, a, w);
  momentum_errors<momentum>(e, a, w);
  momentum_errors_backward<momentum>(e, a, g, w);
  momentum_keys_backward<momentum>(e, a, g, w);
  g.b = state_product(e, w.m, w.dm, w);
  if (a.moves_anchor) g.b_a = state_product(e, w.m, w.da, w);
  if constexpr (has_s) {
    g.f = state_product(e, w.s, w.dm, w);
    g.p = state_product(e, w.s, w.ds, w);
    if (a.moves_anchor) g.f_a = state_product(e, w.s, w.da, w);
  }
  momentum_states_backward<momentum>(e, a, w);
}

}  // namespace weft::kernels::programs
