#pragma once

#include "kernels/programs/scalar_scan.h"

// Backward of programs/scalar_scan.h. With dO scaled by s when it is loaded, P = (Q K^T) * D and
// dP = (dO V^T) * D:
//   dQ = diag(e^b) dO M_0^T + dP K             dK = dP^T Q + diag(e^{b_C - b}) V dM_C^T
//   dV = P^T dO + diag(e^{b_C - b}) K dM_C     dM_0 = e^{b_C} dM_C + Q^T diag(e^b) dO
//   db_i = q_i . dq_i - k_i . dk_i, and db_C += <M_C, dM_C>;   dg_i = sum of db_j over j >= i
namespace weft::kernels::programs {

template <class Engine, class S>
struct ScanOuterSpace {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::chunk, &S::left, tile::kAt> left;
  Op<&S::chunk, &S::right, tile::kB> right;
  Vec<&S::chunk> b, from_start, to_end;

  template <class F>
  void parts(F f) {
    f(left), f(right), f(b), f(from_start), f(to_end);
  }
};

// after = e^{b_C} before + (diag(weights) left)^T right: what a chunk does to a state, without
// outputs.
//   M:  left = K, right = V,  weights e^{b_C - b}
//   dM: left = Q, right = dO, weights s e^b, from the end of the chunk to its start
enum class Weights : uint8_t { kToEnd, kFromStart };
template <class Engine>
struct ScanOuter {
  typename Engine::In left, right;
  typename Engine::InVector log_decay;
  float scale;
  typename Engine::In before;
  typename Engine::Out after;
};
template <Weights weights, class Engine, class Space>
WEFT_TILE float scan_outer(Engine& e, const ScanOuter<Engine>& a, Space& w) {
  using namespace tile;
  const float last = scan_decays(e, a.log_decay, w);
  const float decay = e.exp(last);
  const auto& weight = weights == Weights::kToEnd ? w.to_end : w.from_start;
  e.load(w.left, a.left, [&](auto i, auto, auto x) { return x * (a.scale * weight[i]); });
  e.load(w.right, a.right);
  e.run(kFull, tn(w.left, w.right),
        map([&](auto i, auto j, auto x) { return x + e.at(a.before, i, j) * decay; }),
        store(a.after));
  return last;
}

template <class Engine>
struct ScanChunkGradients {
  typename Engine::In d_out;
  typename Engine::In state;  // M_0
  typename Engine::Out dq, dk, dv;
  typename Engine::OutVector d_log_decay;
};

template <class Engine, class S>
struct ScanBackwardSpace {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::key, &S::value, tile::kB | tile::kBt | tile::kEntries> dm;  // dM after the chunk, then
                                                                     // before it
  Vec<&S::key> product;                 // rows of <M, dM> at that place
  Op<&S::key, &S::value, tile::kBt> m;  // M_0
  Op<&S::chunk, &S::key, tile::kA | tile::kAt | tile::kB> q;
  Op<&S::chunk, &S::key, tile::kA | tile::kB | tile::kBt> k;
  Op<&S::chunk, &S::value, tile::kA | tile::kBt> v;
  Op<&S::chunk, &S::value, tile::kA | tile::kB> d_out;
  Op<&S::chunk, &S::chunk, tile::kAt> p;
  Op<&S::chunk, &S::chunk, tile::kA | tile::kAt> dp;
  Vec<&S::chunk> b, from_start, to_end, db, db_key;

  template <class F>
  void parts(F f) {
    f(dm), f(product), f(m), f(q), f(k), f(v), f(d_out), f(p), f(dp);
    f(b), f(from_start), f(to_end), f(db), f(db_key);
  }
};

// Gradients of a chunk from w.dm = dM_C and behind = <M_C, dM_C>; returns b_C.
template <class Engine, class Space>
WEFT_TILE float scan_gradients(Engine& e, const ScanChunk<Engine>& a,
                               const ScanChunkGradients<Engine>& g, float behind, Space& w) {
  using namespace tile;
  const float last = scan_load(e, a, w);
  e.load(w.m, g.state);
  e.load(w.d_out, g.d_out, [&](auto, auto, auto x) { return x * a.scale; });
  const auto decayed = [&](auto i, auto j, auto x) {
    return e.select(e.inside(kLower, i, j), x * e.exp_down(w.b[i] - w.b[j]), 0.0f);
  };
  e.run(kLower, nt(w.q, w.k), map(decayed), put(w.p));
  e.run(kLower, nt(w.d_out, w.v), map(decayed), put(w.dp));

  e.fill(w.db, [&](auto) { return e.number(0.0f); });
  e.fill(w.db_key, [&](auto) { return e.number(0.0f); });
  const auto scale_from_start = map([&](auto i, auto, auto x) { return x * w.from_start[i]; });
  const auto scale_to_end = map([&](auto i, auto, auto x) { return x * w.to_end[i]; });
  e.run(kFull, nt(w.d_out, w.m), scale_from_start, nn(w.dp, w.k, Banded::kA, kLower), store(g.dq),
        row_sum(w.db, [&](auto i, auto j, auto x) { return x * w.q(i, j); }));
  e.run(kFull, nt(w.v, w.dm), scale_to_end, tn(w.dp, w.q, Banded::kA, kLower), store(g.dk),
        row_sum(w.db_key, [&](auto i, auto j, auto x) { return x * w.k(i, j); }));
  e.run(kFull, nn(w.k, w.dm), scale_to_end, tn(w.p, w.d_out, Banded::kA, kLower), store(g.dv));

  e.fill(w.db, [&](auto i) { return w.db[i] - w.db_key[i]; });
  e.add_to_last(w.db, behind);
  e.reverse_cumsum(w.db);
  e.save(w.db, g.d_log_decay);
  return last;
}

// Gradients of a chunk, and w.dm, w.product moved from behind the chunk to before it.
template <class Engine, class Space>
WEFT_TILE void scan_backward(Engine& e, const ScanChunk<Engine>& a,
                             const ScanChunkGradients<Engine>& g, Space& w) {
  using namespace tile;
  const float decay = e.exp(scan_gradients(e, a, g, e.total(w.product), w));
  e.load(w.q, a.q, [&](auto i, auto, auto x) { return x * w.from_start[i]; });
  e.fill(w.product, [&](auto) { return e.number(0.0f); });
  e.run(kFull, tn(w.q, w.d_out),
        map([&](auto i, auto j, auto x) { return x + w.dm(i, j) * decay; }), put(w.dm),
        row_sum(w.product, [&](auto i, auto j, auto x) { return x * e.at(g.state, i, j); }));
}

}  // namespace weft::kernels::programs
