#pragma once

#include "kernels/programs/diagonal_scan.h"

// A state that a diagonal plus rank-one matrix carries on, one chunk of C tokens of one head (Q,
// Alpha, B, K [C, key]; V, Z, O [C, value]; a_t = e^{g_t}):
//   M_t = diag(a_t) M_{t-1} + b_t^T z_t + k_t^T v_t,   z_t = alpha_t M_{t-1},   o_t = s q_t M_t
// Two kinds of queries, q' = q a and alpha, read the state before the token; two kinds of keys
// write. Between any two of them, with the products of decays of programs/diagonal_scan.h,
//   P^{qk}_ij = sum_c q'_ic k_jc a_{j+1,c} ... a_{i-1,c}   (i > j), and P^{qb}, P^{ak}, P^{ab}:
//   R   = (alpha * a_1 ... a_{i-1}) M_0 + P^{ak} V
//   Z   = T R,   T = (I - P^{ab})^{-1}
//   O   = s [ (q' * a_1 ... a_{i-1}) M_0 + (P^{qk} + diag(q . k)) V + (P^{qb} + diag(q . b)) Z ]
//   M_C = diag(a_1 ... a_C) M_0 + (K * a_{j+1} ... a_C)^T V + (B * a_{j+1} ... a_C)^T Z
// The delta rule with a decay per channel, of strength beta_t, has alpha_t = -k_t a_t and one kind
// of key, b_t = beta_t k_t, which writes z_t = v_t + alpha_t M_{t-1}: above without K and V, and
//   R   = (alpha * a_1 ... a_{i-1}) M_0 + V
// Scores are kept transposed.
namespace weft::kernels::programs {

enum class RankOne : uint8_t { kGeneral, kDelta };

inline constexpr tile::Band kAbove{
    1, tile::kFar};  // of a transposed matrix that is zero on the diagonal

template <class Engine>
struct RankOneChunk {
  typename Engine::In q, k, v;
  typename Engine::In log_decay;       // g
  typename Engine::In alpha, beta;     // general
  typename Engine::InVector strength;  // delta
  float scale = 1.0f;
};

// S: chunk(), block(), key(), value().
template <class Engine, class S, RankOne form>
struct RankOneSpace {
  static constexpr bool general = form == RankOne::kGeneral;
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::key, &S::value, tile::kB | tile::kEntries> m;
  Op<&S::chunk, &S::key, tile::kEntries> q, alpha, b, k, a;  // q', alpha, b, k, e^g
  Op<&S::chunk, &S::key, tile::kEntries> from;               // decays from the start of the block
  Op<&S::block, &S::key, tile::kA | tile::kBt> q_block, alpha_block;  // queries * from
  Op<&S::chunk, &S::key, tile::kA> q_start, alpha_start;              // from the start of the chunk
  // To the end of the blocks seen.
  Op<&S::chunk, &S::key, tile::kA | tile::kAt | tile::kEntries> b_end, k_end;
  Op<&S::chunk, &S::value, tile::kB> v, r;
  Op<&S::chunk, &S::value, tile::kB | tile::kEntries> z;
  Op<&S::chunk, &S::chunk, tile::kAt | tile::kEntries> qb, qk, ak;
  Op<&S::chunk, &S::chunk, tile::kEntries> ab;
  Op<&S::chunk, &S::chunk, tile::kA | tile::kEntries> t;
  Vec<&S::key> total, within, walk;  // decay of the blocks seen, of the last one; a walk's own
  Vec<&S::chunk> strength, qb_same, qk_same;  // q . b and q . k of a token with itself

  template <class F>
  void parts(F f) {
    f(m), f(q), f(alpha), f(b), f(a), f(from), f(q_block), f(alpha_block), f(q_start);
    f(alpha_start), f(b_end), f(r), f(z), f(qb), f(ab), f(t);
    f(total), f(within), f(walk), f(strength), f(qb_same);
    if constexpr (general) f(k), f(k_end), f(v), f(qk), f(ak), f(qk_same);
  }
};

// Whether a chunk is read (q and all that only its outputs need), or carries the state on alone.
enum class Reads : uint8_t { kNo, kYes };

// Queries, keys and decays from memory, and what a token's query says to its own keys.
template <Reads reads = Reads::kYes, class Engine, class Space>
WEFT_TILE void rank_one_load(Engine& e, const RankOneChunk<Engine>& c, Space& w) {
  using namespace tile;
  const auto zero = [&](auto) { return e.number(0.0f); };
  e.load(w.a, c.log_decay, [&](auto, auto, auto x) { return e.exp_down(x); });
  if constexpr (Space::general) {
    e.load(w.alpha, c.alpha);
    e.load(w.b, c.beta);
    e.load(w.k, c.k);
  } else {
    e.load(w.strength, c.strength);
    e.load(w.alpha, c.k, [&](auto i, auto j, auto x) { return -x * w.a(i, j); });
    e.load(w.b, c.k, [&](auto i, auto, auto x) { return x * w.strength[i]; });
  }
  if constexpr (reads == Reads::kNo) return;
  e.load(w.q, c.q);
  e.fill(w.qb_same, zero);
  if constexpr (Space::general) {
    e.fill(w.qk_same, zero);
    e.run(kFull, take(w.q),
          row_sum(w.qk_same, [&](auto i, auto j, auto x) { return x * w.k(i, j); }));
  }
  e.run(kFull, take(w.q), row_sum(w.qb_same, [&](auto i, auto j, auto x) { return x * w.b(i, j); }),
        map([&](auto i, auto j, auto x) { return x * w.a(i, j); }), put(w.q));
}

// The queries of a block over the decays from its start, and from the start of the chunk.
template <Reads reads = Reads::kYes, class Engine, class Space, class Span>
WEFT_TILE void rank_one_queries(Engine& e, const Span& rows, Space& w) {
  using namespace tile;
  e.fill(w.within, [&](auto) { return e.number(1.0f); });
  e.walk_down(w.within, rows, [&](auto i, auto j, auto x) {
    e.set(w.from, i, j, x);
    return x * w.a(i, j);
  });
  const auto from = e.part(w.from, rows);
  const auto carry = [&](const auto& queries, auto& in_block, auto& in_chunk) {
    auto block = e.part(in_block, Span{0, rows.count});
    auto start = e.part(in_chunk, rows);
    e.run(kFull, take(e.part(queries, rows)),
          map([&](auto i, auto j, auto x) { return x * from(i, j); }), put(block),
          put(start, [&](auto, auto j, auto x) { return x * w.total[j]; }));
  };
  if constexpr (reads == Reads::kYes) carry(w.q, w.q_block, w.q_start);
  carry(w.alpha, w.alpha_block, w.alpha_start);
}

// The rows of all scores that belong to the queries of a block.
template <Reads reads = Reads::kYes, class Engine, class Space, class Span>
WEFT_TILE void rank_one_scores(Engine& e, const Span& rows, Space& w) {
  using namespace tile;
  constexpr bool read = reads == Reads::kYes;
  if (rows.first > 0) {
    const Span before{0, rows.first}, block{0, rows.count};
    const auto meet = [&](const auto& keys, const auto& queries, auto& scores) {
      auto to = e.box(scores, before, rows);
      e.run(kFull, nt(e.part(keys, before), e.part(queries, block)), put(to));
    };
    meet(w.b_end, w.alpha_block, w.ab);
    if constexpr (read) meet(w.b_end, w.q_block, w.qb);
    if constexpr (Space::general) meet(w.k_end, w.alpha_block, w.ak);
    if constexpr (Space::general && read) meet(w.k_end, w.q_block, w.qk);
  }
  using Near = typename Engine::template Scores<Space::general ? 2 : 1>;
  if constexpr (!read) {
    e.near_scores(w.alpha, w.b, w.a, rows, w.ab);
    if constexpr (Space::general) e.near_scores(w.alpha, w.k, w.a, rows, w.ak);
  } else if constexpr (Space::general) {
    e.near_scores(Near{{&w.q, &w.alpha}, {&w.b, &w.k}, w.a, {{&w.qb, &w.qk}, {&w.ab, &w.ak}}},
                  rows);
  } else {
    e.near_scores(Near{{&w.q, &w.alpha}, {&w.b}, w.a, {{&w.qb}, {&w.ab}}}, rows);
  }
  if constexpr (read) e.settle(e.box(w.qb, rows, rows));
  if constexpr (Space::general && read) e.settle(e.box(w.qk, rows, rows));
  if constexpr (Space::general) e.settle(e.box(w.ak, rows, rows));
}

template <class Engine, class Space>
WEFT_TILE typename Engine::Span block_rows(int64_t first, const Space& w) {
  const int64_t left = w.q.rows - first;
  return {first, left < kDiagonalBlock ? left : kDiagonalBlock};
}

// Scores, and the queries and keys over the decays of the whole chunk.
template <Reads reads = Reads::kYes, class Engine, class Space>
WEFT_TILE void rank_one_blocks(Engine& e, Space& w) {
  e.clear(w.ab);
  if constexpr (Space::general) e.clear(w.ak);
  if constexpr (reads == Reads::kYes) e.clear(w.qb);
  if constexpr (Space::general && reads == Reads::kYes) e.clear(w.qk);
  e.fill(w.total, [&](auto) { return e.number(1.0f); });
  for (int64_t first = 0; first < w.q.rows; first += kDiagonalBlock) {
    const auto rows = block_rows<Engine>(first, w);
    rank_one_queries<reads>(e, rows, w);
    rank_one_scores<reads>(e, rows, w);
    diagonal_extend(e, rows, w, w.b_end, [&](auto i, auto j, auto x) { return x * w.b(i, j); });
    if constexpr (Space::general) {
      diagonal_extend(e, rows, w, w.k_end, [&](auto i, auto j, auto x) { return x * w.k(i, j); });
    }
    e.fill(w.total, [&](auto j) { return w.total[j] * w.within[j]; });
  }
}

// Everything of a chunk but its outputs: scores, T and Z from the state w.m before it.
template <Reads reads = Reads::kYes, class Engine, class Space>
WEFT_TILE void rank_one_values(Engine& e, const RankOneChunk<Engine>& c, Space& w) {
  using namespace tile;
  rank_one_load<reads>(e, c, w);
  rank_one_blocks<reads>(e, w);
  e.turn_over(w.ab, w.t);
  e.run(kFull, take(w.t), map([&](auto, auto, auto x) { return -x; }), put(w.t));
  e.invert_unit_lower(w.t);
  if constexpr (Space::general) {
    e.load(w.v, c.v);
    e.run(kFull, nn(w.alpha_start, w.m), tn(w.ak, w.v, Banded::kA, kAbove), put(w.r));
  } else {
    e.run(kFull, nn(w.alpha_start, w.m),
          map([&](auto i, auto j, auto x) { return x + e.at(c.v, i, j); }), put(w.r));
  }
  e.run(kFull, nn(w.t, w.r, Banded::kA, kLower), put(w.z));
}

// w.m moved from before the chunk to behind it; `to` (may be empty) gets it too.
template <class Engine, class Space>
WEFT_TILE void rank_one_carry(Engine& e, const typename Engine::Out& to, Space& w) {
  using namespace tile;
  const auto writes = [&](const auto&... rest) {
    const auto carried = map([&](auto i, auto j, auto x) { return x + w.m(i, j) * w.total[i]; });
    if constexpr (Space::general) {
      e.run(kFull, tn(w.b_end, w.z), tn(w.k_end, w.v), carried, rest...);
    } else {
      e.run(kFull, tn(w.b_end, w.z), carried, rest...);
    }
  };
  if (to.empty()) {
    writes(put(w.m));
  } else {
    writes(put(w.m), store(to));
  }
}

// The state after a chunk alone, from the state w.m before it: no queries, no outputs.
template <class Engine, class Space>
WEFT_TILE void rank_one_pass(Engine& e, const RankOneChunk<Engine>& c, Space& w) {
  rank_one_values<Reads::kNo>(e, c, w);
  rank_one_carry(e, {}, w);
}

// Outputs of a chunk and the state after it, from the state w.m before it.
template <class Engine, class Space>
WEFT_TILE void rank_one_forward(Engine& e, const RankOneChunk<Engine>& c,
                                const typename Engine::Out& out, const typename Engine::Out& state,
                                Space& w) {
  using namespace tile;
  rank_one_values(e, c, w);
  const auto scaled = store(out, [&](auto, auto, auto x) { return x * c.scale; });
  if constexpr (Space::general) {
    e.run(kFull, nn(w.q_start, w.m), tn(w.qb, w.z, Banded::kA, kAbove),
          tn(w.qk, w.v, Banded::kA, kAbove), map([&](auto i, auto j, auto x) {
            return x + w.qb_same[i] * w.z(i, j) + w.qk_same[i] * w.v(i, j);
          }),
          scaled);
  } else {
    e.run(kFull, nn(w.q_start, w.m), tn(w.qb, w.z, Banded::kA, kAbove),
          map([&](auto i, auto j, auto x) { return x + w.qb_same[i] * w.z(i, j); }), scaled);
  }
  rank_one_carry(e, state, w);
}

}  // namespace weft::kernels::programs
