#pragma once

#include "kernels/programs/attention.h"

// Backward of programs/attention.h, scores transposed as there. P is recomputed from the saved
// log-sum-exp:
//   P_ji = e^{S_ji - lse_i}    delta_i = do_i . o_i    dS = P * (V dO^T - delta)
//   dV += P dO                 dK += s dS Q            dQ += s dS^T K
// and for a bias c_i - c_j the sums of dS over keys and over queries.
namespace weft::kernels::programs {

template <class Engine>
struct AttentionQueries {
  typename Engine::In q, out, d_out;
  typename Engine::InVector log_sum_exp;
  typename Engine::Out dq;
};

// d_key, d_value: f32 sums over the blocks of queries.
template <class Engine>
struct AttentionKeys {
  typename Engine::In k, v;
  typename Engine::Out d_key, d_value;
  float scale;
  tile::Band band;
};

template <class Engine, class S>
struct AttentionBackwardSpace {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::queries, &S::key, tile::kB | tile::kBt> q;
  Op<&S::queries, &S::value, tile::kB | tile::kBt> d_out;
  Op<&S::queries, &S::key, tile::kEntries> dq;
  Vec<&S::queries> log_sum_exp, delta;
  Op<&S::keys, &S::key, tile::kA | tile::kB> k;
  Op<&S::keys, &S::value, tile::kA> v;
  Op<&S::keys, &S::queries, tile::kA | tile::kEntries> p;
  Op<&S::keys, &S::queries, tile::kA | tile::kAt> ds;  // s dS

  template <class F>
  void parts(F f) {
    f(q), f(d_out), f(dq), f(log_sum_exp), f(delta), f(k), f(v), f(p), f(ds);
  }
};

WEFT_TILE void bias_backward_begin(auto&, const NoBias&) {}
template <class Engine, class S>
WEFT_TILE void bias_backward_begin(Engine& e, Forgetting<Engine, S>& bias) {
  e.fill(bias.d_queries, [&](auto) { return e.number(0.0f); });
}

// Step two of a block: s dS into w.ds, and sums of dS where the bias asks for them.
template <class Engine, class Space>
WEFT_TILE void score_gradient(Engine& e, const NoBias&, const AttentionKeys<Engine>& a, Space& w) {
  using namespace tile;
  e.run(a.band, nt(w.v, w.d_out),
        map([&](auto j, auto i, auto x) { return w.p(j, i) * (x - w.delta[i]); }),
        put(w.ds, [&](auto, auto, auto x) { return x * a.scale; }));
}
template <class Engine, class S, class Space>
WEFT_TILE void score_gradient(Engine& e, Forgetting<Engine, S>& bias,
                              const AttentionKeys<Engine>& a, Space& w) {
  using namespace tile;
  e.fill(bias.d_keys, [&](auto) { return e.number(0.0f); });
  e.run(a.band, nt(w.v, w.d_out),
        map([&](auto j, auto i, auto x) { return w.p(j, i) * (x - w.delta[i]); }),
        put(w.ds, [&](auto, auto, auto x) { return x * a.scale; }), column_sum(bias.d_queries),
        row_sum(bias.d_keys));
}

template <class Engine, class Space>
WEFT_TILE void attention_backward_begin(Engine& e, const AttentionQueries<Engine>& a, Space& w) {
  using namespace tile;
  e.load(w.q, a.q);
  e.load(w.d_out, a.d_out);
  e.clear(w.dq);
  e.load(w.log_sum_exp, a.log_sum_exp);
  e.fill(w.delta, [&](auto) { return e.number(0.0f); });
  e.run(kFull, take(w.d_out),
        row_sum(w.delta, [&](auto i, auto j, auto x) { return x * e.at(a.out, i, j); }));
}

template <class Engine, class Bias, class Space>
WEFT_TILE void attention_backward_block(Engine& e, const AttentionKeys<Engine>& a, Bias& bias,
                                        Space& w) {
  using namespace tile;
  e.load(w.k, a.k);
  e.load(w.v, a.v);
  e.run(a.band, nt(w.k, w.q), map([&](auto j, auto i, auto x) {
          return e.select(e.inside(a.band, j, i),
                          e.exp_down(bias(j, i, x * a.scale) - w.log_sum_exp[i]), 0.0f);
        }),
        put(w.p));
  score_gradient(e, bias, a, w);
  e.run(kFull, take(a.d_value), nn(w.p, w.d_out, Banded::kA, a.band), store(a.d_value));
  e.run(kFull, take(a.d_key), nn(w.ds, w.q, Banded::kA, a.band), store(a.d_key));
  e.run(kFull, take(w.dq), tn(w.ds, w.k, Banded::kA, a.band), put(w.dq));
}

template <class Engine, class Space>
WEFT_TILE void attention_backward_end(Engine& e, const AttentionQueries<Engine>& a, Space& w) {
  using namespace tile;
  e.run(kFull, take(w.dq), store(a.dq));
}

}  // namespace weft::kernels::programs
