#pragma once

#include "kernels/programs/diagonal_scan_backward.h"
#include "kernels/programs/two_sided_scan.h"

// Backward of programs/two_sided_scan.h. With dO scaled by s when it is loaded, x_i = dO_i * c_i
// and dP_ij = sum over value channels of x_i v_j c_{j+1} ... c_{i-1}, both sides are (q, k, a) =
// (q', k, a) weighed by dP and (x, v, c) weighed by P:
//   dq_i = sum_j T_ij W_ij k_j + (a_1 ... a_{i-1}) R_i       dk_j = sum_i T_ij W_ij q_i + (a_{j+1}
//   ... a_C) L_j
// T the weights, W_ij the decays between the two, R and L what the states give:
//   key side:   R_i = (x_i * c_1 ... c_{i-1}) M_0^T            L_j = (v_j * c_{j+1} ... c_C) dM_C^T
//   value side: R_i = (q'_i * a_1 ... a_{i-1}) M_0             L_j = (k_j * a_{j+1} ... a_C) dM_C
// (dq of the value side is the output without the token's own decay and term.)
//   dM_0 = diag(a_1 ... a_C) dM_C diag(c_1 ... c_C) + (q' * a_1 ... a_{i-1})^T (x * c_1 ...
//   c_{i-1})
// Gradients of the decays follow from q dq - k dk and M_C * dM_C on either side, as in
// diagonal_scan_backward.h; the token's own terms are added after them.
namespace weft::kernels::programs {

template <class Engine>
struct TwoSidedChunkGradients {
  typename Engine::In d_out;
  typename Engine::In state;  // M_0
  typename Engine::Out dq, dk, dv, d_key_decay, d_value_decay;
};

template <class Engine, class S, auto width>
struct DecaySideGradients : DecaySide<Engine, S, width> {
  using Base = DecaySide<Engine, S, width>;
  typename Base::template Op<&S::chunk, width, tile::kEntries> to_end, dq, dk;

  template <class F>
  void parts(F f) {
    Base::parts(f), f(to_end), f(dq), f(dk);
  }
};

template <class Engine, class S>
struct TwoSidedBackwardSpace {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  // dM behind the chunk, then before it.
  Op<&S::key, &S::value, tile::kB | tile::kBt | tile::kEntries> dm;
  Vec<&S::key> key_product;                        // sums over values of M * dM at that place
  Vec<&S::value> value_product;                    // the sum over keys
  Op<&S::key, &S::value, tile::kB | tile::kBt> m;  // M_0
  DecaySideGradients<Engine, S, &S::key> key;
  DecaySideGradients<Engine, S, &S::value> value;
  Vec<&S::chunk> same, d_same;

  template <class F>
  void parts(F f) {
    f(dm), f(key_product), f(value_product), f(m), key.parts(f), value.parts(f);
    f(same), f(d_same);
  }
};

// dq of a block, and what its rows add to dk of all rows before them. `weights` are transposed;
// `from_state` is the product that gives R.
template <class Engine, class Span, class Side, class Weights, class Product>
WEFT_TILE void side_gradients(Engine& e, const Span& rows, Side& w, const Weights& weights,
                              const Product& from_state) {
  using namespace tile;
  const Span before{0, rows.first};
  const auto from = e.part(w.from, rows);
  const auto t = e.box(weights, before, rows);
  auto dq = e.part(w.dq, rows);
  auto dk = e.part(w.dk, before);
  if (rows.first > 0) {
    e.run(kFull, nn(t, e.part(w.q_block, Span{0, rows.count})),
          map([&](auto i, auto j, auto x) { return x * w.to_end(i, j) + w.dk(i, j); }), put(dk));
  }
  e.run(kFull, from_state, map([&](auto, auto j, auto x) { return x * w.total[j]; }),
        tn(t, e.part(w.k_end, before)), map([&](auto i, auto j, auto x) { return x * from(i, j); }),
        put(dq));
  e.near_gradients_turned({w.q, w.k, w.a}, rows, weights, w.dq, w.dk);
}

template <class Engine, class Side>
WEFT_TILE void side_start(Engine& e, Side& w) {
  e.clear(w.pt);
  e.clear(w.dk);
  e.fill(w.total, [&](auto) { return e.number(1.0f); });
}

// Everything block by block; leaves the totals, to_end and k_end as of the whole chunk. `decays`:
// those of keys.
template <class Engine, class Space>
WEFT_TILE void two_sided_blocks_backward(Engine& e, bool decays, Space& w) {
  using namespace tile;
  const auto as_is = [](auto, auto, auto x) { return x; };
  side_start(e, w.key);
  side_start(e, w.value);
  if (!decays) plain_side(e, w.key);
  for_blocks<Engine>(w.key.q.rows, [&](const auto& rows) {
    diagonal_queries(e, rows, w.value);
    diagonal_scores(e, rows, w.value);
    if (decays) {
      diagonal_queries(e, rows, w.key);
      diagonal_scores(e, rows, w.key);
      side_gradients(e, rows, w.key, w.value.pt, nt(e.part(w.value.q_start, rows), w.m));
      diagonal_extend(e, rows, w.key, w.key.to_end, as_is);
      diagonal_keys(e, rows, w.key);
    }
    side_gradients(e, rows, w.value, w.key.pt, nn(e.part(w.key.q_start, rows), w.m));
    diagonal_extend(e, rows, w.value, w.value.to_end, as_is);
    diagonal_keys(e, rows, w.value);
  });
}

// dq and dk of the key side but for the token's own terms.
template <class Engine, class Space>
WEFT_TILE void key_gradients(Engine& e, bool decays, Space& w) {
  using namespace tile;
  auto& key = w.key;
  if (decays) {
    e.run(kFull, nt(w.value.k_end, w.dm),
          map([&](auto i, auto j, auto x) { return x * key.to_end(i, j) + key.dk(i, j); }),
          put(key.dk));
    return;
  }
  e.run(kFull, nt(w.value.q_start, w.m), tn(w.value.pt, key.k, Banded::kA, kLater), put(key.dq));
  e.run(kFull, nt(w.value.k_end, w.dm), nn(w.value.pt, key.q, Banded::kA, kLater), put(key.dk));
}

// Gradients of the decays of a side, without the token's own terms in dq and dk; `product` goes
// from behind the chunk to before it.
template <class Engine, class Side, class Vec>
WEFT_TILE void side_decay_gradients(Engine& e, Side& w, Vec& product,
                                    const typename Engine::Out& to) {
  using namespace tile;
  e.walk_up(product, typename Engine::Span{0, w.q.rows}, [&](auto i, auto j, auto x) {
    const auto here = x + w.q(i, j) * w.dq(i, j) - w.k(i, j) * w.dk(i, j);
    e.set(w.from, i, j, here);
    return here;
  });
  e.run(kFull, take(w.from), store(to));
}

// Gradients of a chunk, and w.dm and the products moved from behind the chunk to before it.
template <class Engine, class Space>
WEFT_TILE void two_sided_backward(Engine& e, const TwoSidedChunk<Engine>& c,
                                  const TwoSidedChunkGradients<Engine>& g, Space& w) {
  using namespace tile;
  two_sided_load(e, c, w);
  e.load(w.m, g.state);
  e.load(w.value.q, g.d_out, [&](auto, auto, auto x) { return x * c.scale; });
  e.fill(w.d_same, [&](auto) { return e.number(0.0f); });
  e.run(kFull, take(w.value.q),
        row_sum(w.d_same, [&](auto i, auto j, auto x) { return x * w.value.k(i, j); }));
  e.run(kFull, take(w.value.q), map([&](auto i, auto j, auto x) { return x * w.value.a(i, j); }),
        put(w.value.q));
  const bool decays = !c.key_decay.empty();
  two_sided_blocks_backward(e, decays, w);

  auto& key = w.key;
  auto& value = w.value;
  key_gradients(e, decays, w);
  e.run(kFull, nn(key.k_end, w.dm),
        map([&](auto i, auto j, auto x) { return x * value.to_end(i, j) + value.dk(i, j); }),
        put(value.dk));
  if (decays) side_decay_gradients(e, key, w.key_product, g.d_key_decay);
  side_decay_gradients(e, value, w.value_product, g.d_value_decay);

  e.run(kFull, take(key.dk),
        store(g.dk, [&](auto i, auto j, auto x) { return x + w.d_same[i] * e.at(c.q, i, j); }));
  e.run(kFull, take(key.dq), store(g.dq, [&](auto i, auto j, auto x) {
          return x * key.a(i, j) + w.d_same[i] * key.k(i, j);
        }));
  e.run(kFull, take(value.dk), store(g.dv, [&](auto i, auto j, auto x) {
          return x + w.same[i] * c.scale * e.at(g.d_out, i, j);
        }));

  e.fill(w.key_product, [&](auto) { return e.number(0.0f); });
  e.fill(w.value_product, [&](auto) { return e.number(0.0f); });
  const auto product = [&](auto i, auto j, auto x) { return x * e.at(g.state, i, j); };
  e.run(kFull, tn(key.q_start, value.q_start),
        map([&](auto i, auto j, auto x) { return x + w.dm(i, j) * key.total[i] * value.total[j]; }),
        put(w.dm), row_sum(w.key_product, product), column_sum(w.value_product, product));
}

}  // namespace weft::kernels::programs
