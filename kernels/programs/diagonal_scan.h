#pragma once

#include "kernels/tile/steps.h"

// Linear attention with a decay per key channel, one chunk of C tokens of one head (Q, K, a [C,
// key]; V, O [C, value]). With a_t = e^{g_t} and the query carried over its own decay, q'_t = q_t *
// a_t, both forms of kernels/scan/diagonal_scan.h read the state before the token:
//   o_t = s [ q'_t M_{t-1} + (q_t * u * k_t) . 1 v_t ],    M_t = diag(a_t) M_{t-1} + k_t^T v_t
// where u = 1 and q' = q a without a bonus, and q' = q with one. Inside the chunk
//   P_ij = sum_c q'_ic k_jc a_{j+1,c} ... a_{i-1,c}   (i > j)
//   O    = s [ (q' * a_1 ... a_{i-1}) M_0 + (P + diag(q . u k)) V ]
//   M_C  = diag(a_1 ... a_C) M_0 + (K * a_{j+1} ... a_C)^T V
// Blocks of 16 rows: pairs inside one are summed entry by entry; between two blocks the product of
// decays is cut at the later block's first row, where both factors are <= 1. P is kept transposed.
namespace weft::kernels::programs {

inline constexpr int64_t kDiagonalBlock = 16;
inline constexpr tile::Band kUpper{0, tile::kFar};  // of P^T

template <class Engine>
struct DiagonalChunk {
  typename Engine::In q, k, v;
  typename Engine::In log_decay;  // g
  typename Engine::InVector bonus;
  float scale = 1.0f;
};

// S: chunk(), block(), key(), value().
template <class Engine, class S>
struct DiagonalSpace {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::key, &S::value, tile::kB | tile::kEntries> m;
  Vec<&S::key> u;
  Op<&S::chunk, &S::key, tile::kEntries> q, k, a;        // q', k, e^g
  Op<&S::chunk, &S::key, tile::kEntries> from;           // decays from the start of the block
  Op<&S::block, &S::key, tile::kA | tile::kBt> q_block;  // q' * from
  Op<&S::chunk, &S::key, tile::kA> q_start;              // q' * decays from the start of the chunk
  // k * decays to the end of the blocks seen
  Op<&S::chunk, &S::key, tile::kA | tile::kAt | tile::kEntries> k_end;
  Op<&S::chunk, &S::value, tile::kB> v;
  Op<&S::chunk, &S::chunk, tile::kAt | tile::kEntries> pt;
  Vec<&S::key> total, within, walk;  // decay of the blocks seen, of the last one; a walk's own
  Vec<&S::chunk> same;               // q . u k

  template <class F>
  void parts(F f) {
    f(m), f(u), f(q), f(k), f(a), f(from), f(q_block), f(q_start), f(k_end), f(v), f(pt);
    f(total), f(within), f(walk), f(same);
  }
};

// For a walk that carries the state along, without outputs. Names are those of DiagonalSpace.
template <class Engine, class S>
struct DiagonalStateSpace {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::key, &S::value, tile::kEntries> m;
  Op<&S::chunk, &S::key, tile::kEntries> k, a;
  Op<&S::chunk, &S::key, tile::kAt | tile::kEntries> k_end;
  Op<&S::chunk, &S::value, tile::kB> v;
  Vec<&S::key> total, within, walk;

  template <class F>
  void parts(F f) {
    f(m), f(k), f(a), f(k_end), f(v), f(total), f(within), f(walk);
  }
};

// q', k, a, v and `same`, from memory.
template <class Engine, class Space>
WEFT_TILE void diagonal_load(Engine& e, const DiagonalChunk<Engine>& c, Space& w) {
  using namespace tile;
  e.load(w.a, c.log_decay, [&](auto, auto, auto x) { return e.exp_down(x); });
  e.load(w.q, c.q);
  e.load(w.k, c.k);
  e.load(w.v, c.v);
  e.fill(w.same, [&](auto) { return e.number(0.0f); });
  e.run(kFull, take(w.q),
        row_sum(w.same, [&](auto i, auto j, auto x) { return x * w.u[j] * w.k(i, j); }));
  if (c.bonus.empty()) {
    e.run(kFull, take(w.q), map([&](auto i, auto j, auto x) { return x * w.a(i, j); }), put(w.q));
  }
}

// The queries of a block: w.from, w.q_block, w.q_start, and w.within.
template <class Engine, class Space, class Span>
WEFT_TILE void diagonal_queries(Engine& e, const Span& rows, Space& w) {
  using namespace tile;
  e.fill(w.within, [&](auto) { return e.number(1.0f); });
  e.walk_down(w.within, rows, [&](auto i, auto j, auto x) {
    e.set(w.from, i, j, x);
    return x * w.a(i, j);
  });
  const auto from = e.part(w.from, rows);
  auto block = e.part(w.q_block, Span{0, rows.count});
  auto start = e.part(w.q_start, rows);
  e.run(kFull, take(e.part(w.q, rows)), map([&](auto i, auto j, auto x) { return x * from(i, j); }),
        put(block), put(start, [&](auto, auto j, auto x) { return x * w.total[j]; }));
}

// Carries `to_end`, which has `before` rows already, over the rows of a block and appends theirs,
// value(i, j, decay from behind row i to the end of the block).
template <class Engine, class Space, class Op, class Span, class F>
WEFT_TILE void diagonal_extend(Engine& e, const Span& rows, Space& w, Op& to_end, F value) {
  using namespace tile;
  if (rows.first > 0) {
    auto before = e.part(to_end, Span{0, rows.first});
    e.run(kFull, take(before), map([&](auto, auto j, auto x) { return x * w.within[j]; }),
          put(before));
  }
  e.fill(w.walk, [&](auto) { return e.number(1.0f); });
  e.walk_up(w.walk, rows, [&](auto i, auto j, auto x) {
    e.set(to_end, i, j, value(i, j, x));
    return x * w.a(i, j);
  });
  e.settle(e.part(to_end, rows));
}

// The rows of P that belong to the queries of a block.
template <class Engine, class Space, class Span>
WEFT_TILE void diagonal_scores(Engine& e, const Span& rows, Space& w) {
  using namespace tile;
  if (rows.first > 0) {
    const Span before{0, rows.first};
    auto to = e.box(w.pt, before, rows);
    e.run(kFull, nt(e.part(w.k_end, before), e.part(w.q_block, Span{0, rows.count})), put(to));
  }
  e.near_scores(w.q, w.k, w.a, rows, w.pt);
  e.settle(e.box(w.pt, rows, rows));
}

// task(rows) for the blocks of a chunk, first to last.
template <class Engine, class Task>
WEFT_TILE void for_blocks(int64_t chunk, Task task) {
  for (int64_t first = 0; first < chunk; first += kDiagonalBlock) {
    const int64_t left = chunk - first;
    task(typename Engine::Span{first, left < kDiagonalBlock ? left : kDiagonalBlock});
  }
}

// Carries w.k_end and w.total over a block whose decays are w.within.
template <class Engine, class Space, class Span>
WEFT_TILE void diagonal_keys(Engine& e, const Span& rows, Space& w) {
  diagonal_extend(e, rows, w, w.k_end, [&](auto i, auto j, auto x) { return x * w.k(i, j); });
  e.fill(w.total, [&](auto j) { return w.total[j] * w.within[j]; });
}

// All blocks at once, with the same bits, where nothing else is wanted.
template <class Engine, class Space>
WEFT_TILE void diagonal_all_keys(Engine& e, Space& w) {
  e.fill(w.total, [&](auto) { return e.number(1.0f); });
  for_blocks<Engine>(w.k.rows, [&](const auto& rows) {
    e.fill(w.within, [&](auto) { return e.number(1.0f); });
    e.walk_down(w.within, rows, [&](auto i, auto j, auto x) { return x * w.a(i, j); });
    diagonal_keys(e, rows, w);
  });
}

// The state w.m taken through a chunk whose keys have been carried to its end; `to` (may be empty)
// gets it too.
template <class Engine, class Space>
WEFT_TILE void diagonal_carry(Engine& e, const typename Engine::Out& to, Space& w) {
  using namespace tile;
  const auto carried = map([&](auto i, auto j, auto x) { return x + w.m(i, j) * w.total[i]; });
  if (to.empty()) {
    e.run(kFull, tn(w.k_end, w.v), carried, put(w.m));
  } else {
    e.run(kFull, tn(w.k_end, w.v), carried, put(w.m), store(to));
  }
}

// Outputs of a chunk and the state after it, from the state w.m before it.
template <class Engine, class Space>
WEFT_TILE void diagonal_forward(Engine& e, const DiagonalChunk<Engine>& c,
                                const typename Engine::Out& out, const typename Engine::Out& state,
                                Space& w) {
  using namespace tile;
  diagonal_load(e, c, w);
  e.clear(w.pt);
  e.fill(w.total, [&](auto) { return e.number(1.0f); });
  for_blocks<Engine>(w.q.rows, [&](const auto& rows) {
    diagonal_queries(e, rows, w);
    diagonal_scores(e, rows, w);
    diagonal_keys(e, rows, w);
  });
  e.run(kFull, nn(w.q_start, w.m), tn(w.pt, w.v, Banded::kA, kUpper),
        map([&](auto i, auto j, auto x) { return x + w.same[i] * w.v(i, j); }),
        store(out, [&](auto, auto, auto x) { return x * c.scale; }));
  diagonal_carry(e, state, w);
}

// The state alone, bit for bit as diagonal_forward forms it.
template <class Engine, class Space>
WEFT_TILE void diagonal_state(Engine& e, const DiagonalChunk<Engine>& c,
                              const typename Engine::Out& state, Space& w) {
  e.load(w.a, c.log_decay, [&](auto, auto, auto x) { return e.exp_down(x); });
  e.load(w.k, c.k);
  e.load(w.v, c.v);
  diagonal_all_keys(e, w);
  diagonal_carry(e, state, w);
}

}  // namespace weft::kernels::programs
