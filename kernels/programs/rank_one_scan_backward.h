#pragma once

#include "kernels/programs/rank_one_scan.h"

// Backward of programs/rank_one_scan.h. A first walk, from the start, or forward itself leaves for
// every chunk M_0, T, Z and the scores; a second one, from the end, uses them. With dO scaled by s
// when it is loaded and W_ij = a_{j+1} ... a_{i-1} (a vector over key channels, i > j):
//   dZ = (P^{qb} + diag(q . b))^T dO + (B * a_{j+1} ... a_C) dM_C,   X = T^T dZ   (gradient of R)
//   dV = (P^{qk} + diag(q . k))^T dO + (P^{ak})^T X + (K * a_{j+1} ... a_C) dM_C
//   dP^{qb} = dO Z^T,   dP^{qk} = dO V^T,   dP^{ab} = X Z^T,   dP^{ak} = X V^T
//   dq'_i    = sum_j W_ij (dP^{qb}_ij b_j + dP^{qk}_ij k_j) + (a_1 ... a_{i-1}) (dO M_0^T)_i
//   dalpha_i = sum_j W_ij (dP^{ab}_ij b_j + dP^{ak}_ij k_j) + (a_1 ... a_{i-1}) (X M_0^T)_i
//   db_j = sum_i W_ij (dP^{qb}_ij q'_i + dP^{ab}_ij alpha_i) + (a_{j+1} ... a_C) (Z dM_C^T)_j
//   dk_j likewise, with dP^{qk}, dP^{ak} and V
//   dM_0 = diag(a_1 ... a_C) dM_C + (q' * a_1 ... a_{i-1})^T dO + (alpha * a_1 ... a_{i-1})^T X
//   dg_i = sum_{j>i} (q'_j dq'_j + alpha_j dalpha_j) - sum_{j>=i} (b_j db_j + k_j dk_j)
//          + rowsum(M_C * dM_C) + q'_i dq'_i
// and only then the token's own term, which no decay has touched:
//   dq_i = a_i dq'_i + (dO_i . z_i) b_i + (dO_i . v_i) k_i,  db_i += (dO_i . z_i) q_i,
//   dk_i += (dO_i . v_i) q_i
// The delta rule: dV = X, no K; the decay in alpha = -k a gives dg_i += alpha_i dalpha_i, and
//   dk_i = beta_i db_i - a_i dalpha_i,   dbeta_i = k_i . db_i
namespace weft::kernels::programs {

// Results of the first walk that the second one reads: [C, C] each, z [C, value].
template <class Engine>
struct RankOneKept {
  typename Engine::Out t, z, qb, qk, ak;
};

// Fills `kept` for a chunk whose values are already in `w`.
template <class Engine, class Space>
WEFT_TILE void rank_one_keep(Engine& e, const RankOneKept<Engine>& kept, Space& w) {
  using namespace tile;
  e.run(kFull, take(w.t), store(kept.t));
  e.run(kFull, take(w.z), store(kept.z));
  e.run(kFull, take(w.qb), store(kept.qb));
  if constexpr (Space::general) {
    e.run(kFull, take(w.qk), store(kept.qk));
    e.run(kFull, take(w.ak), store(kept.ak));
  }
}

template <class Engine, class Space>
WEFT_TILE void rank_one_rebuild(Engine& e, const RankOneChunk<Engine>& c,
                                const RankOneKept<Engine>& kept, const typename Engine::Out& state,
                                Space& w) {
  rank_one_values(e, c, w);
  rank_one_keep(e, kept, w);
  rank_one_carry(e, state, w);
}

template <class Engine>
struct RankOneChunkGradients {
  typename Engine::In d_out;
  typename Engine::In state, t, z, qb, qk, ak;  // M_0 and what was kept
  typename Engine::Out dq, dk, dv, d_log_decay;
  typename Engine::Out d_alpha, d_beta;   // general
  typename Engine::OutVector d_strength;  // delta
};

template <class Engine, class S, RankOne form>
struct RankOneBackwardSpace {
  static constexpr bool general = form == RankOne::kGeneral;
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  // Behind the chunk, then before it.
  Op<&S::key, &S::value, tile::kB | tile::kBt | tile::kEntries> dm;
  Vec<&S::key> product;                 // rows of M * dM at that place
  Op<&S::key, &S::value, tile::kBt> m;  // M_0
  Op<&S::chunk, &S::key, tile::kEntries> q, alpha, b, k, a, from, to_end;
  Op<&S::block, &S::key, tile::kA | tile::kB | tile::kBt> q_block, alpha_block;
  Op<&S::chunk, &S::key, tile::kAt> q_start, alpha_start;
  Op<&S::chunk, &S::key, tile::kA | tile::kB | tile::kEntries> b_end, k_end;
  Op<&S::chunk, &S::key, tile::kA | tile::kEntries> db;  // first: b over the decays of the chunk
  Op<&S::chunk, &S::key, tile::kEntries> dq, d_alpha, dk;
  Op<&S::chunk, &S::value, tile::kA | tile::kBt> v, z;
  Op<&S::chunk, &S::value, tile::kA | tile::kB> d_out, x;
  Op<&S::chunk, &S::value, tile::kB> dz;
  Op<&S::chunk, &S::chunk, tile::kA> qb, qk, ak;
  Op<&S::chunk, &S::chunk, tile::kAt> t;
  Op<&S::chunk, &S::chunk, tile::kA | tile::kAt | tile::kEntries> d_qb, d_qk, d_ab, d_ak;
  Vec<&S::key> total, within, walk;
  Vec<&S::chunk> strength, qb_same, qk_same, d_qb_same, d_qk_same, d_strength;

  template <class F>
  void parts(F f) {
    f(dm), f(product), f(m), f(q), f(alpha), f(b), f(a), f(from), f(to_end), f(q_block);
    f(alpha_block), f(q_start), f(alpha_start), f(b_end), f(dq), f(d_alpha), f(db), f(z), f(d_out);
    f(x), f(dz), f(qb), f(t), f(d_qb), f(d_ab), f(total), f(within), f(walk), f(strength);
    f(qb_same), f(d_qb_same), f(d_strength);
    if constexpr (general) {
      f(k), f(k_end), f(dk), f(v), f(qk), f(ak), f(d_qk), f(d_ak), f(qk_same), f(d_qk_same);
    }
  }
};

template <class Engine, class Space>
WEFT_TILE void rank_one_backward_load(Engine& e, const RankOneChunk<Engine>& c,
                                      const RankOneChunkGradients<Engine>& g, Space& w) {
  using namespace tile;
  rank_one_load(e, c, w);
  e.load(w.m, g.state);
  e.load(w.z, g.z);
  e.borrow(w.t, g.t);
  e.borrow(w.qb, g.qb);
  e.load(w.d_out, g.d_out, [&](auto, auto, auto x) { return x * c.scale; });
  const auto own = [&](auto& sums, const auto& values) {
    e.fill(sums, [&](auto) { return e.number(0.0f); });
    e.run(kFull, take(w.d_out),
          row_sum(sums, [&](auto i, auto j, auto x) { return x * values(i, j); }));
  };
  own(w.d_qb_same, w.z);
  if constexpr (Space::general) {
    e.load(w.v, c.v);
    e.borrow(w.qk, g.qk);
    e.borrow(w.ak, g.ak);
    own(w.d_qk_same, w.v);
  }
}

// w.x, the gradient of R, and the gradients of all scores.
template <class Engine, class Space>
WEFT_TILE void rank_one_score_gradients(Engine& e, const RankOneChunkGradients<Engine>& g,
                                        Space& w) {
  using namespace tile;
  auto& b_end = w.db;  // over the whole chunk; w.b_end will grow block by block
  e.fill(w.walk, [&](auto) { return e.number(1.0f); });
  e.walk_up(w.walk, typename Engine::Span{0, w.q.rows}, [&](auto i, auto j, auto x) {
    e.set(b_end, i, j, x * w.b(i, j));
    return x * w.a(i, j);
  });
  e.settle(b_end);
  e.run(kFull, nn(b_end, w.dm), nn(w.qb, w.d_out, Banded::kA, kAbove),
        map([&](auto i, auto j, auto x) { return x + w.qb_same[i] * w.d_out(i, j); }), put(w.dz));
  if constexpr (Space::general) {
    e.run(kFull, tn(w.t, w.dz, Banded::kA, kLower), put(w.x));
    e.run(kLower, nt(w.d_out, w.v), put(w.d_qk));
    e.run(kLower, nt(w.x, w.v), put(w.d_ak));
  } else {
    e.run(kFull, tn(w.t, w.dz, Banded::kA, kLower), put(w.x), store(g.dv));
  }
  e.run(kLower, nt(w.d_out, w.z), put(w.d_qb));
  e.run(kLower, nt(w.x, w.z), put(w.d_ab));
}

// Gradients of a block's queries, and what these add to the gradients of all keys before them.
template <class Engine, class Space, class Span>
WEFT_TILE void rank_one_block_gradients(Engine& e, const Span& rows, Space& w) {
  using namespace tile;
  const Span before{0, rows.first}, block{0, rows.count};
  const auto from = e.part(w.from, rows);
  const auto start = map([&](auto, auto j, auto x) { return x * w.total[j]; });
  const auto queries = [&](const auto& values, const auto& by_b, const auto& by_k, auto& gradient) {
    const auto here = map([&](auto i, auto j, auto x) { return x * from(i, j); });
    auto to = e.part(gradient, rows);
    const auto b = e.box(by_b, rows, before);
    if constexpr (Space::general) {
      e.run(kFull, nt(e.part(values, rows), w.m), start, nn(b, e.part(w.b_end, before)),
            nn(e.box(by_k, rows, before), e.part(w.k_end, before)), here, put(to));
    } else {
      e.run(kFull, nt(e.part(values, rows), w.m), start, nn(b, e.part(w.b_end, before)), here,
            put(to));
    }
  };
  queries(w.d_out, w.d_qb, w.d_qk, w.dq);
  queries(w.x, w.d_ab, w.d_ak, w.d_alpha);
  if (rows.first == 0) return;
  const auto keys = [&](const auto& by_q, const auto& by_alpha, auto& gradient) {
    auto to = e.part(gradient, before);
    e.run(kFull, tn(e.box(by_q, rows, before), e.part(w.q_block, block)),
          tn(e.box(by_alpha, rows, before), e.part(w.alpha_block, block)),
          map([&](auto i, auto j, auto x) { return x * w.to_end(i, j) + gradient(i, j); }),
          put(to));
  };
  keys(w.d_qb, w.d_ab, w.db);
  if constexpr (Space::general) keys(w.d_qk, w.d_ak, w.dk);
}

template <class Engine, class Space, class Span>
WEFT_TILE void rank_one_near_gradients(Engine& e, const Span& rows, Space& w) {
  using Near = typename Engine::template ScoreGradients<Space::general ? 2 : 1>;
  if constexpr (Space::general) {
    e.near_gradients(Near{{&w.q, &w.alpha},
                          {&w.b, &w.k},
                          w.a,
                          {{&w.d_qb, &w.d_qk}, {&w.d_ab, &w.d_ak}},
                          {&w.dq, &w.d_alpha},
                          {&w.db, &w.dk}},
                     rows);
  } else {
    e.near_gradients(
        Near{{&w.q, &w.alpha}, {&w.b}, w.a, {{&w.d_qb}, {&w.d_ab}}, {&w.dq, &w.d_alpha}, {&w.db}},
        rows);
  }
}

// Everything block by block; leaves w.total, w.to_end and the operands that depend on them as of
// the whole chunk.
template <class Engine, class Space>
WEFT_TILE void rank_one_blocks_backward(Engine& e, Space& w) {
  e.clear(w.db);
  if constexpr (Space::general) e.clear(w.dk);
  e.fill(w.total, [&](auto) { return e.number(1.0f); });
  for (int64_t first = 0; first < w.q.rows; first += kDiagonalBlock) {
    const auto rows = block_rows<Engine>(first, w);
    rank_one_queries(e, rows, w);
    rank_one_block_gradients(e, rows, w);
    rank_one_near_gradients(e, rows, w);
    diagonal_extend(e, rows, w, w.to_end, [&](auto, auto, auto x) { return x; });
    diagonal_extend(e, rows, w, w.b_end, [&](auto i, auto j, auto x) { return x * w.b(i, j); });
    if constexpr (Space::general) {
      diagonal_extend(e, rows, w, w.k_end, [&](auto i, auto j, auto x) { return x * w.k(i, j); });
    }
    e.fill(w.total, [&](auto j) { return w.total[j] * w.within[j]; });
  }
}

// Adds the part of the state behind the chunk to the gradients of keys and values.
template <class Engine, class Space>
WEFT_TILE void rank_one_writes(Engine& e, const RankOneChunkGradients<Engine>& g, Space& w) {
  using namespace tile;
  e.run(kFull, nt(w.z, w.dm),
        map([&](auto i, auto j, auto x) { return x * w.to_end(i, j) + w.db(i, j); }), put(w.db));
  if constexpr (Space::general) {
    e.run(kFull, nt(w.v, w.dm),
          map([&](auto i, auto j, auto x) { return x * w.to_end(i, j) + w.dk(i, j); }), put(w.dk));
    e.run(kFull, nn(w.k_end, w.dm), nn(w.qk, w.d_out, Banded::kA, kAbove),
          nn(w.ak, w.x, Banded::kA, kAbove),
          map([&](auto i, auto j, auto x) { return x + w.qk_same[i] * w.d_out(i, j); }),
          store(g.dv));
  }
}

// Gradients of the decays; w.dq, w.db and w.dk do not yet have the token's own term.
template <class Engine, class Space>
WEFT_TILE void rank_one_decay_gradients(Engine& e, const typename Engine::Out& d_log_decay,
                                        Space& w) {
  using namespace tile;
  auto& dg = w.from;
  e.walk_up(w.product, typename Engine::Span{0, w.q.rows}, [&](auto i, auto j, auto x) {
    const auto query = w.q(i, j) * w.dq(i, j), alpha = w.alpha(i, j) * w.d_alpha(i, j);
    auto behind = x + query - w.b(i, j) * w.db(i, j);
    if constexpr (Space::general) behind -= w.k(i, j) * w.dk(i, j);
    e.set(dg, i, j, Space::general ? behind : behind + alpha);
    return behind + alpha;
  });
  e.run(kFull, take(dg), store(d_log_decay));
}

// The token's own terms, and everything to memory.
template <class Engine, class Space>
WEFT_TILE void rank_one_store(Engine& e, const RankOneChunk<Engine>& c,
                              const RankOneChunkGradients<Engine>& g, Space& w) {
  using namespace tile;
  const auto with_own = [&](auto i, auto j, auto x) {
    return x + w.d_qb_same[i] * e.at(c.q, i, j);
  };
  if constexpr (Space::general) {
    e.run(kFull, take(w.d_alpha), store(g.d_alpha));
    e.run(kFull, take(w.db), store(g.d_beta, with_own));
    e.run(kFull, take(w.dk), store(g.dk, [&](auto i, auto j, auto x) {
            return x + w.d_qk_same[i] * e.at(c.q, i, j);
          }));
    e.run(kFull, take(w.dq), store(g.dq, [&](auto i, auto j, auto x) {
            return x * w.a(i, j) + w.d_qb_same[i] * w.b(i, j) + w.d_qk_same[i] * w.k(i, j);
          }));
  } else {
    e.fill(w.d_strength, [&](auto) { return e.number(0.0f); });
    e.run(kFull, take(w.db), map(with_own),
          row_sum(w.d_strength, [&](auto i, auto j, auto x) { return x * e.at(c.k, i, j); }),
          store(g.dk, [&](auto i, auto j, auto x) {
            return x * w.strength[i] - w.a(i, j) * w.d_alpha(i, j);
          }));
    e.save(w.d_strength, g.d_strength);
    e.run(kFull, take(w.dq), store(g.dq, [&](auto i, auto j, auto x) {
            return x * w.a(i, j) + w.d_qb_same[i] * w.b(i, j);
          }));
  }
}

// Gradients of a chunk, and w.dm, w.product moved from behind the chunk to before it.
template <class Engine, class Space>
WEFT_TILE void rank_one_backward(Engine& e, const RankOneChunk<Engine>& c,
                                 const RankOneChunkGradients<Engine>& g, Space& w) {
  using namespace tile;
  rank_one_backward_load(e, c, g, w);
  rank_one_score_gradients(e, g, w);
  rank_one_blocks_backward(e, w);
  rank_one_writes(e, g, w);
  rank_one_decay_gradients(e, g.d_log_decay, w);
  rank_one_store(e, c, g, w);
  e.fill(w.product, [&](auto) { return e.number(0.0f); });
  e.run(kFull, tn(w.q_start, w.d_out), tn(w.alpha_start, w.x),
        map([&](auto i, auto j, auto x) { return x + w.dm(i, j) * w.total[i]; }), put(w.dm),
        row_sum(w.product, [&](auto i, auto j, auto x) { return x * e.at(g.state, i, j); }));
}

}  // namespace weft::kernels::programs
