#pragma once

#include "kernels/tile/steps.h"

// The (gated) delta rule, one chunk of C tokens of one head (Q, K [C, key]; V, O [C, value]):
//   M_t = e^{g_t} (I - beta_t k_t^T k_t) M_{t-1} + beta_t k_t^T v_t,   o_t = s q_t M_t
// which is linear attention with decay whose values are corrected by what the state already says,
//   u_t = beta_t (v_t - e^{g_t} k_t M_{t-1}),   M_t = e^{g_t} M_{t-1} + k_t^T u_t.
// With b_i = g_1 + ... + g_i inside the chunk and D_ij = e^{b_i - b_j}:
//   N = (K K^T) * D  (i > j)                 T = (I + diag(beta) N)^{-1}
//   R = V - diag(e^b) K M_0                  U = T diag(beta) R
//   O = s [ diag(e^b) Q M_0 + ((Q K^T) * D) U ]      (i >= j)
//   M_C = e^{b_C} M_0 + K^T diag(e^{b_C - b}) U
// T diag(beta) is multiplied with V and K M_0 together: with the state at hand that is cheaper than
// the matrix T diag(beta e^b) K of the form that works without it.
namespace weft::kernels::programs {

template <class Engine>
struct DeltaChunk {
  typename Engine::In q, k, v;
  typename Engine::InVector beta, log_decay;
  float scale = 1.0f;
};

// S: chunk(), key(), value(), run-time or constexpr. What outlives a chunk comes first.
template <class Engine, class S>
struct DeltaSpace {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::key, &S::value, tile::kB | tile::kEntries> m;
  Op<&S::chunk, &S::key, tile::kA> q;
  Op<&S::chunk, &S::key, tile::kA | tile::kAt | tile::kBt> k;
  Op<&S::chunk, &S::chunk, tile::kA> n, p;
  Op<&S::chunk, &S::chunk, tile::kA | tile::kEntries> t;
  Op<&S::chunk, &S::value, tile::kEntries> r;
  Op<&S::chunk, &S::value, tile::kB> beta_r, u, u_to_end;  // beta_r: diag(beta) R
  Vec<&S::chunk> beta, b, from_start, to_end;              // from_start: e^b, to_end: e^{b_C - b}

  template <class F>
  void parts(F f) {
    f(m), f(q), f(k), f(n), f(p), f(t), f(r), f(beta_r), f(u), f(u_to_end);
    f(beta), f(b), f(from_start), f(to_end);
  }
};

// beta, b and the two exponentials of it; returns b_C.
template <class Engine, class Space>
WEFT_TILE float delta_gates(Engine& e, const DeltaChunk<Engine>& a, Space& w) {
  e.load(w.beta, a.beta);
  e.load(w.b, a.log_decay);
  e.cumsum(w.b);
  const float last = w.b.last();
  e.fill(w.from_start, [&](auto i) { return e.exp_down(w.b[i]); });
  e.fill(w.to_end, [&](auto i) { return e.exp_down(last - w.b[i]); });
  return last;
}

// N, T, R and U of a chunk, from the state w.m before it; returns b_C.
template <class Engine, class Space>
WEFT_TILE float delta_values(Engine& e, const DeltaChunk<Engine>& a, Space& w) {
  using namespace tile;
  const float last = delta_gates(e, a, w);
  e.load(w.k, a.k);
  e.run(kBelow, nt(w.k, w.k), map([&](auto i, auto j, auto x) {
          return e.select(e.inside(kBelow, i, j), x * e.exp_down(w.b[i] - w.b[j]), 0.0f);
        }),
        put(w.n), put(w.t, [&](auto i, auto, auto x) { return x * w.beta[i]; }));
  e.invert_unit_lower(w.t);
  e.run(kFull, nn(w.k, w.m),
        map([&](auto i, auto j, auto x) { return e.at(a.v, i, j) - x * w.from_start[i]; }),
        put(w.r), put(w.beta_r, [&](auto i, auto, auto x) { return x * w.beta[i]; }));
  e.run(kFull, nn(w.t, w.beta_r, Banded::kA, kLower), put(w.u),
        put(w.u_to_end, [&](auto i, auto, auto x) { return x * w.to_end[i]; }));
  return last;
}

// w.m moved from before the chunk to behind it; `to` (may be empty) gets it too.
template <class Engine, class Space>
WEFT_TILE void delta_carry(Engine& e, float last, const typename Engine::Out& to, Space& w) {
  using namespace tile;
  const float decay = e.exp(last);
  const auto carried = map([&](auto i, auto j, auto x) { return x + w.m(i, j) * decay; });
  if (to.empty()) {
    e.run(kFull, tn(w.k, w.u_to_end), carried, put(w.m));
  } else {
    e.run(kFull, tn(w.k, w.u_to_end), carried, put(w.m), store(to));
  }
}

// The state after a chunk alone, from the state w.m before it: no queries, no outputs.
template <class Engine, class Space>
WEFT_TILE void delta_pass(Engine& e, const DeltaChunk<Engine>& a, Space& w) {
  delta_carry(e, delta_values(e, a, w), {}, w);
}

// Outputs of a chunk and the state after it, from the state w.m before it.
template <class Engine, class Space>
WEFT_TILE void delta_forward(Engine& e, const DeltaChunk<Engine>& a,
                             const typename Engine::Out& out, const typename Engine::Out& state,
                             Space& w) {
  using namespace tile;
  const float last = delta_values(e, a, w);
  e.load(w.q, a.q);
  e.run(kLower, nt(w.q, w.k), map([&](auto i, auto j, auto x) {
          return e.select(e.inside(kLower, i, j), x * e.exp_down(w.b[i] - w.b[j]), 0.0f);
        }),
        put(w.p));
  e.run(kFull, nn(w.q, w.m), map([&](auto i, auto, auto x) { return x * w.from_start[i]; }),
        nn(w.p, w.u, Banded::kA, kLower),
        store(out, [&](auto, auto, auto x) { return x * a.scale; }));
  delta_carry(e, last, state, w);
}

}  // namespace weft::kernels::programs
