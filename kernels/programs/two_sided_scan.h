#pragma once

#include "kernels/programs/diagonal_scan.h"

// Linear attention with a decay per key channel and one per value channel, one chunk of C tokens of
// one head. With a_t = e^{g_t} on the key side, c_t = e^{h_t} on the value side and q'_t = q_t *
// a_t:
//   M_t = diag(a_t) M_{t-1} diag(c_t) + k_t^T v_t,    o_t = s q_t M_t
//   P_ij = sum over key channels of q'_i k_j a_{j+1} ... a_{i-1}   (i > j), as in diagonal_scan.h
//   o_i  = s [ c_i * ( sum_{j<i} P_ij (c_{j+1} ... c_{i-1}) v_j
//                      + (c_1 ... c_{i-1}) ((q'_i * a_1 ... a_{i-1}) M_0) ) + (q_i . k_i) v_i ]
//   M_C  = diag(a_1 ... a_C) M_0 diag(c_1 ... c_C)
//          + (K * a_{j+1} ... a_C)^T (V * c_{j+1} ... c_C)
// Both sides have one shape: pairs (x_i, y_j) with a product of decays in between, (q', k, a) on
// one and (dO c, v, c) on the other, where P weighs the pairs of the value side and its gradient
// those of the key side. Blocks of 16 rows, cut as there. P is kept transposed.
namespace weft::kernels::programs {

template <class Engine>
struct TwoSidedChunk {
  typename Engine::In q, k, v;
  typename Engine::In key_decay, value_decay;  // logarithms; no key_decay: 0
  float scale = 1.0f;
};

// One side; `width` is S::key or S::value. Names are those of DiagonalSpace, whose functions serve
// both sides: x is q, y is k.
template <class Engine, class S, auto width>
struct DecaySide {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::chunk, width, tile::kA | tile::kB | tile::kBt | tile::kEntries> q;
  Op<&S::chunk, width, tile::kEntries> a, from;
  Op<&S::chunk, width, tile::kA | tile::kB | tile::kEntries> k;
  Op<&S::block, width, tile::kA | tile::kB | tile::kBt> q_block;
  Op<&S::chunk, width, tile::kA | tile::kAt | tile::kB> q_start;
  Op<&S::chunk, width, tile::kA | tile::kAt | tile::kB | tile::kEntries> k_end;
  Op<&S::chunk, &S::chunk, tile::kA | tile::kAt | tile::kEntries> pt;
  Vec<width> total, within, walk;

  template <class F>
  void parts(F f) {
    f(q), f(a), f(from), f(k), f(q_block), f(q_start), f(k_end), f(pt);
    f(total), f(within), f(walk);
  }
};

template <class Engine, class S>
struct TwoSidedSpace {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::key, &S::value, tile::kB | tile::kEntries> m;
  DecaySide<Engine, S, &S::key> key;
  DecaySide<Engine, S, &S::value> value;  // of it: a, k (v), from, k_end, total, within, walk
  Op<&S::chunk, &S::value, tile::kEntries> out;
  Vec<&S::chunk> same;  // q . k

  template <class F>
  void parts(F f) {
    f(m), key.parts(f), value.parts(f), f(out), f(same);
  }
};

// For a walk that carries the state along, without outputs.
template <class Engine, class S, auto width>
struct DecaySideToEnd {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;

  Op<&S::chunk, width, tile::kEntries> a, k;
  Op<&S::chunk, width, tile::kAt | tile::kB | tile::kEntries> k_end;
  typename Engine::template Vector<S, width> total, within, walk;

  template <class F>
  void parts(F f) {
    f(a), f(k), f(k_end), f(total), f(within), f(walk);
  }
};
template <class Engine, class S>
struct TwoSidedStateSpace {
  typename Engine::template Operand<S, &S::key, &S::value, tile::kEntries> m;
  DecaySideToEnd<Engine, S, &S::key> key;
  DecaySideToEnd<Engine, S, &S::value> value;

  template <class F>
  void parts(F f) {
    f(m), key.parts(f), value.parts(f);
  }
};

// a = e^g; 1 where there is no decay.
template <class Engine, class Op, class View>
WEFT_TILE void load_decay(Engine& e, const View& log_decay, const View& like, Op& a) {
  if (log_decay.empty()) {
    e.load(a, like, [&](auto, auto, auto) { return e.number(1.0f); });
  } else {
    e.load(a, log_decay, [&](auto, auto, auto x) { return e.exp_down(x); });
  }
}

// q', k, a, `same`, v and c, from memory.
template <class Engine, class Space>
WEFT_TILE void two_sided_load(Engine& e, const TwoSidedChunk<Engine>& c, Space& w) {
  using namespace tile;
  load_decay(e, c.key_decay, c.k, w.key.a);
  load_decay(e, c.value_decay, c.v, w.value.a);
  e.load(w.key.q, c.q);
  e.load(w.key.k, c.k);
  e.load(w.value.k, c.v);
  e.fill(w.same, [&](auto) { return e.number(0.0f); });
  e.run(kFull, take(w.key.q),
        row_sum(w.same, [&](auto i, auto j, auto x) { return x * w.key.k(i, j); }));
  e.run(kFull, take(w.key.q), map([&](auto i, auto j, auto x) { return x * w.key.a(i, j); }),
        put(w.key.q));
}

inline constexpr tile::Band kLater{1, tile::kFar};  // of P^T without the diagonal

// The side of keys that do not decay: its scores are one product, and start and end are no
// different.
template <class Engine, class Side>
WEFT_TILE void plain_side(Engine& e, Side& w) {
  using namespace tile;
  e.run(kLater, nt(w.k, w.q),
        map([&](auto i, auto j, auto x) { return e.select(e.inside(kLater, i, j), x, 0.0f); }),
        put(w.pt));
  e.run(kFull, take(w.q), put(w.q_start));
  e.run(kFull, take(w.k), put(w.k_end));
}

// Outputs of a block, without the token's own term and the scale.
template <class Engine, class Space, class Span>
WEFT_TILE void two_sided_outputs(Engine& e, const Span& rows, Space& w) {
  using namespace tile;
  auto& v = w.value;
  e.fill(v.within, [&](auto) { return e.number(1.0f); });
  e.walk_down(v.within, rows, [&](auto i, auto j, auto x) {
    const auto here = x * v.a(i, j);
    e.set(v.from, i, j, here);
    return here;
  });
  const Span before{0, rows.first};
  const auto from = e.part(v.from, rows);
  auto out = e.part(w.out, rows);
  e.run(kFull, nn(e.part(w.key.q_start, rows), w.m),
        map([&](auto, auto j, auto x) { return x * v.total[j]; }),
        tn(e.box(w.key.pt, before, rows), e.part(v.k_end, before)),
        map([&](auto i, auto j, auto x) { return x * from(i, j); }), put(out));
  e.near_reads(w.key.pt, v.k, v.a, rows, w.out);
}

// The state w.m taken through a chunk, both sides of which have been carried to its end; `to` (may
// be empty) gets it too.
template <class Engine, class Space>
WEFT_TILE void two_sided_carry(Engine& e, const typename Engine::Out& to, Space& w) {
  using namespace tile;
  const auto carried = map(
      [&](auto i, auto j, auto x) { return x + w.m(i, j) * w.key.total[i] * w.value.total[j]; });
  if (to.empty()) {
    e.run(kFull, tn(w.key.k_end, w.value.k_end), carried, put(w.m));
  } else {
    e.run(kFull, tn(w.key.k_end, w.value.k_end), carried, put(w.m), store(to));
  }
}

// Outputs of a chunk and the state after it, from the state w.m before it.
template <class Engine, class Space>
WEFT_TILE void two_sided_forward(Engine& e, const TwoSidedChunk<Engine>& c,
                                 const typename Engine::Out& out, const typename Engine::Out& state,
                                 Space& w) {
  using namespace tile;
  two_sided_load(e, c, w);
  const bool decays = !c.key_decay.empty();
  if (decays) {
    e.clear(w.key.pt);
  } else {
    plain_side(e, w.key);
  }
  e.fill(w.key.total, [&](auto) { return e.number(1.0f); });
  e.fill(w.value.total, [&](auto) { return e.number(1.0f); });
  for_blocks<Engine>(w.key.q.rows, [&](const auto& rows) {
    if (decays) {
      diagonal_queries(e, rows, w.key);
      diagonal_scores(e, rows, w.key);
    }
    two_sided_outputs(e, rows, w);
    if (decays) diagonal_keys(e, rows, w.key);
    diagonal_keys(e, rows, w.value);
  });
  e.run(kFull, take(w.out), store(out, [&](auto i, auto j, auto x) {
          return (x + w.same[i] * w.value.k(i, j)) * c.scale;
        }));
  two_sided_carry(e, state, w);
}

// The state alone, bit for bit as two_sided_forward forms it.
template <class Engine, class Space>
WEFT_TILE void two_sided_state(Engine& e, const TwoSidedChunk<Engine>& c,
                               const typename Engine::Out& state, Space& w) {
  using namespace tile;
  load_decay(e, c.key_decay, c.k, w.key.a);
  load_decay(e, c.value_decay, c.v, w.value.a);
  e.load(w.key.k, c.k);
  e.load(w.value.k, c.v);
  if (c.key_decay.empty()) {
    e.fill(w.key.total, [&](auto) { return e.number(1.0f); });
    e.run(kFull, take(w.key.k), put(w.key.k_end));
  } else {
    diagonal_all_keys(e, w.key);
  }
  diagonal_all_keys(e, w.value);
  two_sided_carry(e, state, w);
}

}  // namespace weft::kernels::programs
