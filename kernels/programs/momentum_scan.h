#pragma once

#include "kernels/tile/steps.h"

// Descent with momentum and decay, one chunk of C tokens of one head (Q, K [C, key]; V, O [C,
// value]). With M, S, A entering it, tokens counted from 0 and states from 1 (state 0 enters):
//   M_i = b_i M + f_i S + sum_j G_ij k_j^T e_j,    S_i = p_i S + sum_j H_ij k_j^T e_j
//   e_i = v_i - k_i M_r(i),   r(i) the state that the token's mini-batch found; A where that was
//   before the chunk
// b, f, p, G and H are scalar recurrences of the gates, which the driver solves. In matrices:
//   N = (K K^T) * G_r  (j < r(i))      T = (I + N)^{-1}
//   R = V - diag(b_r) K M - diag(f_r) K S - diag(before) K A        E = T R
//   O = s [ diag(b_o) Q M + diag(f_o) Q S + ((Q K^T) * G_o) E ]     (o(i) = i + 1)
//   M_C = b_C M + f_C S + K^T diag(G_C) E,   S_C = p_C S + K^T diag(H_C) E,   A likewise from M, S
// Without momentum there is no S.
namespace weft::kernels::programs {

enum class Momentum : uint8_t { kNo, kYes };

template <class Engine>
struct MomentumChunk {
  typename Engine::In q, k, v;
  typename Engine::In read, out;                     // G_r, G_o [C, C]
  typename Engine::InVector b_read, f_read, before;  // before: 1 where A is read, else 0
  typename Engine::InVector b_out, f_out;
  typename Engine::InVector to_m, to_s, to_a;   // G_C, H_C, and the row of G of A
  float b = 0, f = 0, p = 0, b_a = 0, f_a = 0;  // at C, and at the state that becomes A
  bool reads_anchor = false, moves_anchor = false;
  float scale = 1.0f;
};

// S: chunk(), key(), value(). What outlives a chunk comes first.
template <class Engine, class S>
struct MomentumSpace {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::key, &S::value, tile::kB> m, s, a;
  Op<&S::chunk, &S::key, tile::kA | tile::kAt | tile::kBt> k;
  Op<&S::chunk, &S::key, tile::kA> q, by_m, by_s, by_a;  // queries or keys, weighted
  Op<&S::chunk, &S::chunk, tile::kA> t, p;
  Op<&S::chunk, &S::value, tile::kB> r, e, e_m, e_s, e_a;
  Vec<&S::chunk> b_read, f_read, before, b_out, f_out, to_m, to_s, to_a;

  template <class F>
  void parts(F f) {
    f(m), f(s), f(a), f(k), f(q), f(by_m), f(by_s), f(by_a), f(t), f(p);
    f(r), f(e), f(e_m), f(e_s), f(e_a);
    f(b_read), f(f_read), f(before), f(b_out), f(f_out), f(to_m), f(to_s), f(to_a);
  }
};

template <class Engine, class Space>
WEFT_TILE void momentum_weights(Engine& e, const MomentumChunk<Engine>& a, Space& w) {
  e.load(w.b_read, a.b_read), e.load(w.f_read, a.f_read), e.load(w.before, a.before);
  e.load(w.b_out, a.b_out), e.load(w.f_out, a.f_out);
  e.load(w.to_m, a.to_m), e.load(w.to_s, a.to_s), e.load(w.to_a, a.to_a);
}

// T and E, and E as it is written into each state, from the states before the chunk.
template <Momentum momentum, class Engine, class Space>
WEFT_TILE void momentum_errors(Engine& e, const MomentumChunk<Engine>& a, Space& w) {
  using namespace tile;
  e.load(w.k, a.k);
  e.run(kBelow, nt(w.k, w.k), map([&](auto i, auto j, auto x) {
          return e.select(e.inside(kBelow, i, j), x * e.at(a.read, i, j), 0.0f);
        }),
        put(w.t));
  e.invert_unit_lower(w.t);
  e.load(w.by_m, a.k, [&](auto i, auto, auto x) { return x * w.b_read[i]; });
  e.run(kFull, nn(w.by_m, w.m), map([&](auto i, auto j, auto x) { return e.at(a.v, i, j) - x; }),
        put(w.r));
  if constexpr (momentum == Momentum::kYes) {
    e.load(w.by_s, a.k, [&](auto i, auto, auto x) { return x * w.f_read[i]; });
    e.run(kFull, nn(w.by_s, w.s), map([&](auto i, auto j, auto x) { return w.r(i, j) - x; }),
          put(w.r));
  }
  if (a.reads_anchor) {
    e.load(w.by_a, a.k, [&](auto i, auto, auto x) { return x * w.before[i]; });
    e.run(kFull, nn(w.by_a, w.a), map([&](auto i, auto j, auto x) { return w.r(i, j) - x; }),
          put(w.r));
  }
  e.run(kFull, nn(w.t, w.r, Banded::kA, kLower), put(w.e),
        put(w.e_m, [&](auto i, auto, auto x) { return x * w.to_m[i]; }),
        put(w.e_s, [&](auto i, auto, auto x) { return x * w.to_s[i]; }),
        put(w.e_a, [&](auto i, auto, auto x) { return x * w.to_a[i]; }));
}

// The states moved from before the chunk to behind it.
template <Momentum momentum, class Engine, class Space>
WEFT_TILE void momentum_states(Engine& e, const MomentumChunk<Engine>& a, Space& w) {
  using namespace tile;
  constexpr bool has_s = momentum == Momentum::kYes;
  const auto mixed = [&](float m, float s) {
    return map([&w, m, s](auto i, auto j, auto x) {
      if constexpr (has_s) {
        return x * m + w.s(i, j) * s;
      } else {
        return x * m;
      }
    });
  };
  if (a.moves_anchor) e.run(kFull, take(w.m), mixed(a.b_a, a.f_a), tn(w.k, w.e_a), put(w.a));
  e.run(kFull, take(w.m), mixed(a.b, a.f), tn(w.k, w.e_m), put(w.m));
  if constexpr (has_s) {
    e.run(kFull, take(w.s), map([&](auto, auto, auto x) { return x * a.p; }), tn(w.k, w.e_s),
          put(w.s));
  }
}

// The states after a chunk alone: no queries, no outputs.
template <Momentum momentum, class Engine, class Space>
WEFT_TILE void momentum_pass(Engine& e, const MomentumChunk<Engine>& a, Space& w) {
  momentum_weights(e, a, w);
  momentum_errors<momentum>(e, a, w);
  momentum_states<momentum>(e, a, w);
}

// Outputs of a chunk and the states after it.
template <Momentum momentum, class Engine, class Space>
WEFT_TILE void momentum_forward(Engine& e, const MomentumChunk<Engine>& a,
                                const typename Engine::Out& out, Space& w) {
  using namespace tile;
  momentum_weights(e, a, w);
  momentum_errors<momentum>(e, a, w);
  e.load(w.q, a.q);
  e.run(kLower, nt(w.q, w.k), map([&](auto i, auto j, auto x) {
          return e.select(e.inside(kLower, i, j), x * e.at(a.out, i, j), 0.0f);
        }),
        put(w.p));
  const auto scaled = [&](auto, auto, auto x) { return x * a.scale; };
  e.load(w.by_m, a.q, [&](auto i, auto, auto x) { return x * w.b_out[i]; });
  if constexpr (momentum == Momentum::kYes) {
    e.load(w.by_s, a.q, [&](auto i, auto, auto x) { return x * w.f_out[i]; });
    e.run(kFull, nn(w.by_m, w.m), nn(w.by_s, w.s), nn(w.p, w.e, Banded::kA, kLower),
          store(out, scaled));
  } else {
    e.run(kFull, nn(w.by_m, w.m), nn(w.p, w.e, Banded::kA, kLower), store(out, scaled));
  }
  momentum_states<momentum>(e, a, w);
}

}  // namespace weft::kernels::programs
