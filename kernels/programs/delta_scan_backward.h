#pragma once

#include "kernels/programs/delta_scan.h"

// Backward of programs/delta_scan.h. A first walk, from the start, or forward itself leaves for
// every chunk M_0, T and
//   E = R - N U,   the errors: U = diag(beta) E
// and a second one, from the end, uses them. With dO scaled by s when it is loaded,
// P = (Q K^T) * D and dP = (dO U^T) * D:
//   dQ = diag(e^b) dO M_0^T + dP K
//   dU = P^T dO + diag(e^{b_C - b}) K dM_C
//   X  = T^T dU,   dV = diag(beta) X,   dbeta_i = x_i . e_i,   S = -(dV U^T) * D  (i > j)
//   dK = dK' + dK''    dK'  = S K - diag(e^b) dV M_0^T                       (K that reads)
//                      dK'' = S^T K + dP^T Q + diag(e^{b_C - b}) U dM_C^T    (K that writes)
//   dM_0 = e^{b_C} dM_C + Q^T diag(e^b) dO - K^T diag(e^b) dV
//   db_i = q_i . dq_i + k_i . dk'_i - k_i . dk''_i, and db_C += <M_C, dM_C>
//   dg_i = sum of db_j over j >= i
namespace weft::kernels::programs {

// Results of the first walk that the second one reads.
template <class Engine>
struct DeltaKept {
  typename Engine::Out t, errors;  // [C, C], [C, value]
};

// Fills `kept` for a chunk whose values are already in `w`.
template <class Engine, class Space>
WEFT_TILE void delta_keep(Engine& e, const DeltaKept<Engine>& kept, Space& w) {
  using namespace tile;
  e.run(kFull, take(w.t), store(kept.t));
  e.run(kFull, nn(w.n, w.u, Banded::kA, kBelow),
        map([&](auto i, auto j, auto x) { return w.r(i, j) - x; }), store(kept.errors));
}

template <class Engine, class Space>
WEFT_TILE void delta_rebuild(Engine& e, const DeltaChunk<Engine>& a, const DeltaKept<Engine>& kept,
                             const typename Engine::Out& state, Space& w) {
  const float last = delta_values(e, a, w);
  delta_keep(e, kept, w);
  delta_carry(e, last, state, w);
}

template <class Engine>
struct DeltaChunkGradients {
  typename Engine::In d_out;
  typename Engine::In state, t, errors;  // M_0, T, E
  typename Engine::Out dq, dk, dv;
  typename Engine::OutVector d_beta, d_log_decay;
};

template <class Engine, class S>
struct DeltaBackwardSpace {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::key, &S::value, tile::kB | tile::kBt | tile::kEntries> dm;  // behind the chunk, then
                                                                     // before it
  Vec<&S::key> product;                 // rows of <M, dM> at that place
  Op<&S::key, &S::value, tile::kBt> m;  // M_0
  Op<&S::chunk, &S::key, tile::kA | tile::kAt | tile::kB> q;
  Op<&S::chunk, &S::key, tile::kA | tile::kAt | tile::kB | tile::kBt> k;
  Op<&S::chunk, &S::value, tile::kBt> u;
  Op<&S::chunk, &S::value, tile::kA> u_to_end;
  Op<&S::chunk, &S::value, tile::kA | tile::kB> d_out;
  Op<&S::chunk, &S::chunk, tile::kAt> t, p;
  Op<&S::chunk, &S::chunk, tile::kA | tile::kAt> dp, s;
  Op<&S::chunk, &S::value, tile::kB> du;
  Op<&S::chunk, &S::value, tile::kA> dv;
  Op<&S::chunk, &S::value, tile::kA | tile::kB> dv_start;  // -diag(e^b) dV
  Vec<&S::chunk> beta, b, from_start, to_end, d_beta, db, db_read, db_key;

  template <class F>
  void parts(F f) {
    f(dm), f(product), f(m), f(q), f(k), f(u), f(u_to_end), f(d_out), f(t), f(p), f(dp), f(s);
    f(du), f(dv), f(dv_start), f(beta), f(b), f(from_start), f(to_end);
    f(d_beta), f(db), f(db_read), f(db_key);
  }
};

template <class Engine, class Space>
WEFT_TILE void delta_backward_load(Engine& e, const DeltaChunk<Engine>& a,
                                   const DeltaChunkGradients<Engine>& g, Space& w) {
  e.load(w.q, a.q);
  e.load(w.k, a.k);
  e.load(w.m, g.state);
  e.borrow(w.t, g.t);
  e.load(w.u, g.errors, [&](auto i, auto, auto x) { return x * w.beta[i]; });
  e.load(w.u_to_end, g.errors, [&](auto i, auto, auto x) { return x * (w.beta[i] * w.to_end[i]); });
  e.load(w.d_out, g.d_out, [&](auto, auto, auto x) { return x * a.scale; });
  const auto zero = [&](auto) { return e.number(0.0f); };
  e.fill(w.d_beta, zero);
  e.fill(w.db, zero);
  e.fill(w.db_read, zero);
  e.fill(w.db_key, zero);
}

// Gradients of a chunk, and w.dm, w.product moved from behind the chunk to before it.
template <class Engine, class Space>
WEFT_TILE void delta_backward(Engine& e, const DeltaChunk<Engine>& a,
                              const DeltaChunkGradients<Engine>& g, Space& w) {
  using namespace tile;
  const float decay = e.exp(delta_gates(e, a, w));
  delta_backward_load(e, a, g, w);
  const auto decayed = [&](auto i, auto j, auto x) {
    return e.select(e.inside(kLower, i, j), x * e.exp_down(w.b[i] - w.b[j]), 0.0f);
  };
  e.run(kLower, nt(w.q, w.k), map(decayed), put(w.p));
  e.run(kLower, nt(w.d_out, w.u), map(decayed), put(w.dp));
  e.run(kFull, nt(w.d_out, w.m), map([&](auto i, auto, auto x) { return x * w.from_start[i]; }),
        nn(w.dp, w.k, Banded::kA, kLower), store(g.dq),
        row_sum(w.db, [&](auto i, auto j, auto x) { return x * w.q(i, j); }));
  e.run(kFull, nn(w.k, w.dm), map([&](auto i, auto, auto x) { return x * w.to_end[i]; }),
        tn(w.p, w.d_out, Banded::kA, kLower), put(w.du));
  e.run(kFull, tn(w.t, w.du, Banded::kA, kLower),
        row_sum(w.d_beta, [&](auto i, auto j, auto x) { return x * e.at(g.errors, i, j); }),
        map([&](auto i, auto, auto x) { return x * w.beta[i]; }), store(g.dv), put(w.dv),
        put(w.dv_start, [&](auto i, auto, auto x) { return -x * w.from_start[i]; }));
  e.run(kBelow, nt(w.dv, w.u), map([&](auto i, auto j, auto x) {
          return e.select(e.inside(kBelow, i, j), -x * e.exp_down(w.b[i] - w.b[j]), 0.0f);
        }),
        put(w.s));
  const auto times_key = [&](auto i, auto j, auto x) { return x * w.k(i, j); };
  e.run(kFull, nt(w.dv_start, w.m), nn(w.s, w.k, Banded::kA, kBelow), row_sum(w.db_read, times_key),
        nt(w.u_to_end, w.dm), tn(w.dp, w.q, Banded::kA, kLower), tn(w.s, w.k, Banded::kA, kBelow),
        row_sum(w.db_key, times_key), store(g.dk));

  // db_key holds both parts of dK.
  const float behind = e.total(w.product);
  e.fill(w.db, [&](auto i) { return w.db[i] + 2.0f * w.db_read[i] - w.db_key[i]; });
  e.add_to_last(w.db, behind);
  e.reverse_cumsum(w.db);
  e.save(w.db, g.d_log_decay);
  e.save(w.d_beta, g.d_beta);

  e.load(w.q, a.q, [&](auto i, auto, auto x) { return x * w.from_start[i]; });
  e.fill(w.product, [&](auto) { return e.number(0.0f); });
  e.run(kFull, tn(w.q, w.d_out), tn(w.k, w.dv_start),
        map([&](auto i, auto j, auto x) { return x + w.dm(i, j) * decay; }), put(w.dm),
        row_sum(w.product, [&](auto i, auto j, auto x) { return x * e.at(g.state, i, j); }));
}

}  // namespace weft::kernels::programs
