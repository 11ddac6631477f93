#pragma once

#include "kernels/programs/diagonal_scan.h"

// Backward of programs/diagonal_scan.h. With dO scaled by s when it is loaded, dP = dO V^T and
// W_ij = a_{j+1} ... a_{i-1} (a vector over key channels, i > j):
//   dq'_i = sum_j dP_ij W_ij k_j + (a_1 ... a_{i-1}) (dO M_0^T)_i
//   dk_j  = sum_i dP_ij W_ij q'_i + (a_{j+1} ... a_C) (V dM_C^T)_j
//   dV    = (P + diag(q . u k))^T dO + (K * a_{j+1} ... a_C) dM_C
//   dM_0  = diag(a_1 ... a_C) dM_C + (q' * a_1 ... a_{i-1})^T dO
//   dg_i  = sum_{j>i} q'_j dq'_j - sum_{j>=i} k_j dk_j + rowsum(M_C * dM_C)   (+ q'_i dq'_i, no
//   bonus)
// and only then the token's own term, which no decay has touched: with d_i = dO_i . v_i
//   dq_i = (a_i) dq'_i + d_i u k_i,   dk_i += d_i u q_i,   du += sum_i d_i q_i k_i
namespace weft::kernels::programs {

template <class Engine>
struct DiagonalChunkGradients {
  typename Engine::In d_out;
  typename Engine::In state;  // M_0
  typename Engine::Out dq, dk, dv, d_log_decay;
};

template <class Engine, class S>
struct DiagonalBackwardSpace {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  // dM behind the chunk, then before it
  Op<&S::key, &S::value, tile::kB | tile::kBt | tile::kEntries> dm;
  Vec<&S::key> u, du, product;          // product: rows of <M, dM> at that place
  Op<&S::key, &S::value, tile::kBt> m;  // M_0
  Op<&S::chunk, &S::key, tile::kEntries> q, k, a, from, to_end;
  Op<&S::block, &S::key, tile::kA | tile::kB | tile::kBt> q_block;
  Op<&S::chunk, &S::key, tile::kAt> q_start;
  Op<&S::chunk, &S::key, tile::kA | tile::kB | tile::kEntries> k_end;  // k * to_end
  Op<&S::chunk, &S::key, tile::kEntries> dq, dk;
  Op<&S::chunk, &S::value, tile::kA | tile::kBt> v;
  Op<&S::chunk, &S::value, tile::kA | tile::kB> d_out;
  Op<&S::chunk, &S::chunk, tile::kA | tile::kEntries> pt;
  Op<&S::chunk, &S::chunk, tile::kA | tile::kAt | tile::kEntries> dp;
  Vec<&S::key> total, within, walk;
  Vec<&S::chunk> same, d_same;

  template <class F>
  void parts(F f) {
    f(dm), f(u), f(du), f(product), f(m), f(q), f(k), f(a), f(from), f(to_end), f(q_block);
    f(q_start), f(k_end), f(dq), f(dk), f(v), f(d_out), f(pt), f(dp);
    f(total), f(within), f(walk), f(same), f(d_same);
  }
};

// dq' of a block, and what its queries add to dk of all keys before them.
template <class Engine, class Space, class Span>
WEFT_TILE void diagonal_block_gradients(Engine& e, const Span& rows, Space& w) {
  using namespace tile;
  const Span before{0, rows.first};
  const auto from = e.part(w.from, rows);
  const auto dp = e.box(w.dp, rows, before);
  auto dq = e.part(w.dq, rows);
  auto dk = e.part(w.dk, before);
  if (rows.first > 0) {
    e.run(kFull, tn(dp, e.part(w.q_block, Span{0, rows.count})),
          map([&](auto i, auto j, auto x) { return x * w.to_end(i, j) + w.dk(i, j); }), put(dk));
  }
  e.run(kFull, nt(e.part(w.d_out, rows), w.m),
        map([&](auto, auto j, auto x) { return x * w.total[j]; }), nn(dp, e.part(w.k_end, before)),
        map([&](auto i, auto j, auto x) { return x * from(i, j); }), put(dq));
}

// Everything block by block; leaves w.total and w.to_end as of the whole chunk.
template <class Engine, class Space>
WEFT_TILE void diagonal_blocks_backward(Engine& e, Space& w) {
  e.clear(w.pt);
  e.clear(w.dk);
  e.fill(w.total, [&](auto) { return e.number(1.0f); });
  for_blocks<Engine>(w.q.rows, [&](const auto& rows) {
    diagonal_queries(e, rows, w);
    diagonal_scores(e, rows, w);
    diagonal_block_gradients(e, rows, w);
    e.near_gradients({w.q, w.k, w.a}, rows, w.dp, w.dq, w.dk);
    diagonal_extend(e, rows, w, w.to_end, [&](auto, auto, auto x) { return x; });
    diagonal_keys(e, rows, w);
  });
}

// Gradients of the decays; w.dq and w.dk do not yet have the token's own term.
template <class Engine, class Space>
WEFT_TILE void diagonal_decay_gradients(Engine& e, bool has_bonus,
                                        const typename Engine::Out& d_log_decay, Space& w) {
  using namespace tile;
  auto& dg = w.from;
  const float own = has_bonus ? 0.0f : 1.0f;
  e.walk_up(w.product, typename Engine::Span{0, w.q.rows}, [&](auto i, auto j, auto x) {
    const auto read = w.q(i, j) * w.dq(i, j);
    const auto behind = x - w.k(i, j) * w.dk(i, j);
    e.set(dg, i, j, behind + own * read);
    return behind + read;
  });
  e.run(kFull, take(dg), store(d_log_decay));
}

// Gradients of a chunk, and w.dm, w.product moved from behind the chunk to before it.
template <class Engine, class Space>
WEFT_TILE void diagonal_backward(Engine& e, const DiagonalChunk<Engine>& c,
                                 const DiagonalChunkGradients<Engine>& g, Space& w) {
  using namespace tile;
  const bool has_bonus = !c.bonus.empty();
  diagonal_load(e, c, w);
  e.load(w.m, g.state);
  e.load(w.d_out, g.d_out, [&](auto, auto, auto x) { return x * c.scale; });
  e.fill(w.d_same, [&](auto) { return e.number(0.0f); });
  e.run(kFull, take(w.d_out),
        row_sum(w.d_same, [&](auto i, auto j, auto x) { return x * w.v(i, j); }));
  e.run(kLower, nt(w.d_out, w.v), put(w.dp));
  diagonal_blocks_backward(e, w);

  e.run(kFull, nt(w.v, w.dm),
        map([&](auto i, auto j, auto x) { return x * w.to_end(i, j) + w.dk(i, j); }), put(w.dk));
  e.run(kFull, nn(w.k_end, w.dm), nn(w.pt, w.d_out, Banded::kA, kUpper),
        map([&](auto i, auto j, auto x) { return x + w.same[i] * w.d_out(i, j); }), store(g.dv));
  diagonal_decay_gradients(e, has_bonus, g.d_log_decay, w);

  const auto own = [&](auto i, auto j) { return w.d_same[i] * w.u[j]; };
  e.run(kFull, take(w.dk),
        store(g.dk, [&](auto i, auto j, auto x) { return x + own(i, j) * e.at(c.q, i, j); }));
  if (has_bonus) {
    e.run(kFull, take(w.k),
          column_sum(w.du, [&](auto i, auto j, auto x) { return x * w.d_same[i] * w.q(i, j); }));
  } else {
    e.run(kFull, take(w.dq), map([&](auto i, auto j, auto x) { return x * w.a(i, j); }), put(w.dq));
  }
  e.run(kFull, take(w.dq),
        store(g.dq, [&](auto i, auto j, auto x) { return x + own(i, j) * w.k(i, j); }));

  e.fill(w.product, [&](auto) { return e.number(0.0f); });
  e.run(kFull, tn(w.q_start, w.d_out),
        map([&](auto i, auto j, auto x) { return x + w.dm(i, j) * w.total[i]; }), put(w.dm),
        row_sum(w.product, [&](auto i, auto j, auto x) { return x * e.at(g.state, i, j); }));
}

}  // namespace weft::kernels::programs
