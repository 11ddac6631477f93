#pragma once

#include "kernels/tile/steps.h"

// Causal softmax attention, one block of queries against one block of keys (FlashAttention). Scores
// lie transposed, keys down and queries across: then keys and values are left operands as they lie
// in memory, and the running maximum and sum of a query are entries of vectors along the columns.
//   S_ji = s q_i . k_j + bias_ji, masked by `band`
//   m_i = running max, l_i = running sum of e^{S_ji - m_i}, O^T = running V^T e^{S - m}
// bias(j, i, x) adds the bias to a score x.
namespace weft::kernels::programs {

// Instead of -inf: differences of it are 0, not NaN. What a query collects before its first visible
// key is wiped by e^{kMasked - max} = 0; every query sees at least itself.
inline constexpr float kMasked = -1e30f;

struct NoBias {
  template <class J, class I, class X>
  WEFT_TILE X operator()(J, I, X x) const {
    return x;
  }
};

// Forgetting attention: bias_ji = c_i - c_j. Both are counted from one query of the block, so that
// long sums cost no precision. S: queries(), keys().
template <class Engine, class S>
struct Forgetting {
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Vec<&S::queries> queries, d_queries;  // c_i - c_0;  sum_j dS_ji in backward
  Vec<&S::keys> keys, d_keys;           // c_0 - c_j;  sum_i dS_ji of the block in backward

  template <class F>
  void parts(F f) {
    f(queries), f(d_queries), f(keys), f(d_keys);
  }
  template <class J, class I, class X>
  WEFT_TILE X operator()(J j, I i, X x) const {
    return x + (queries[i] + keys[j]);
  }
};

// S: queries(), keys(), key(), value(). What outlives a block of keys comes first.
template <class Engine, class S>
struct AttentionSpace {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::queries, &S::key, tile::kBt> q;
  Op<&S::value, &S::queries, tile::kEntries> o;  // O^T
  Vec<&S::queries> max, sum, new_max, shrink;
  Op<&S::keys, &S::key, tile::kA> k;
  Op<&S::keys, &S::value, tile::kAt> v;
  Op<&S::keys, &S::queries, tile::kB | tile::kEntries> p;  // entries: S; in products: e^{S - m}

  template <class F>
  void parts(F f) {
    f(q), f(o), f(max), f(sum), f(new_max), f(shrink), f(k), f(v), f(p);
  }
};

template <class Engine, class Space>
WEFT_TILE void attention_begin(Engine& e, const typename Engine::In& q, Space& w) {
  e.load(w.q, q);
  e.clear(w.o);
  e.fill(w.max, [&](auto) { return e.number(kMasked); });
  e.fill(w.sum, [&](auto) { return e.number(0.0f); });
}

// One block of keys: scale s, and the visible (key, query) pairs.
template <class Engine>
struct AttentionBlock {
  typename Engine::In k, v;
  float scale;
  tile::Band band;
};
template <class Engine, class Bias, class Space>
WEFT_TILE void attention_block(Engine& e, const AttentionBlock<Engine>& a, const Bias& bias,
                               Space& w) {
  using namespace tile;
  const Band& band = a.band;
  e.load(w.k, a.k);
  e.load(w.v, a.v);
  auto scores = e.entries(w.p);
  auto weights = e.factors(w.p);
  e.fill(w.new_max, [&](auto i) { return w.max[i]; });
  e.run(band, nt(w.k, w.q), map([&](auto j, auto i, auto x) {
          return e.select(e.inside(band, j, i), bias(j, i, x * a.scale), kMasked);
        }),
        put(scores), column_max(w.new_max));
  e.fill(w.shrink, [&](auto i) { return e.exp_down(w.max[i] - w.new_max[i]); });
  e.fill(w.sum, [&](auto i) { return w.sum[i] * w.shrink[i]; });
  e.fill(w.max, [&](auto i) { return w.new_max[i]; });
  e.run(band, take(scores), map([&](auto, auto i, auto x) { return e.exp_down(x - w.max[i]); }),
        put(weights), column_sum(w.sum));
  e.run(kFull, take(w.o), map([&](auto, auto i, auto x) { return x * w.shrink[i]; }),
        tn(w.v, weights, Banded::kB, band), put(w.o));
}

template <class Engine, class Space>
WEFT_TILE void attention_end(Engine& e, const typename Engine::Out& out,
                             const typename Engine::OutVector& log_sum_exp, Space& w) {
  using namespace tile;
  e.fill(w.shrink, [&](auto i) { return 1.0f / w.sum[i]; });
  e.run(kFull, take(w.o), store_turned(out, [&](auto, auto i, auto x) { return x * w.shrink[i]; }));
  e.fill(w.max, [&](auto i) { return w.max[i] + e.log(w.sum[i]); });
  e.save(w.max, log_sum_exp);
}

}  // namespace weft::kernels::programs
