#pragma once

#include "kernels/tile/steps.h"

// Scalar-decay linear attention, one chunk of C tokens of one head (Q, K [C, key]; V, O [C,
// value]):
//   M_t = e^{g_t} M_{t-1} + k_t^T v_t,   o_t = s q_t M_t,   b_i = g_1 + ... + g_i inside the chunk
//   D_ij = e^{b_i - b_j} (i >= j)
//   O    = s [ diag(e^b) Q M_0 + ((Q K^T) * D) V ]
//   M_C  = e^{b_C} M_0 + (diag(e^{b_C - b}) K)^T V
// Differences of b are formed first and exponentiated after: they are <= 0, nothing overflows.
namespace weft::kernels::programs {

template <class Engine>
struct ScanChunk {
  typename Engine::In q, k, v;
  typename Engine::InVector log_decay;  // g
  float scale = 1.0f;
};

// Storage for the outputs of a chunk. S: chunk(), key(), value(), run-time or constexpr. Members
// that outlive a chunk come first, because the last chunk of a document may be placed with a
// smaller S.
template <class Engine, class S>
struct ScanOutputSpace {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::key, &S::value, tile::kB | tile::kEntries> m;
  Op<&S::chunk, &S::key, tile::kA> q;
  Op<&S::chunk, &S::key, tile::kBt> k;
  Op<&S::chunk, &S::value, tile::kB> v;
  Op<&S::chunk, &S::chunk, tile::kA> p;
  Vec<&S::chunk> b, from_start, to_end;  // b, e^b, e^{b_C - b}

  template <class F>
  void parts(F f) {
    f(m), f(q), f(k), f(v), f(p), f(b), f(from_start), f(to_end);
  }
};

// For a walk that carries the state along, without outputs.
template <class Engine, class S>
struct ScanStateSpace {
  template <auto rows, auto columns, unsigned uses>
  using Op = typename Engine::template Operand<S, rows, columns, uses>;
  template <auto size>
  using Vec = typename Engine::template Vector<S, size>;

  Op<&S::key, &S::value, tile::kEntries> m;
  Op<&S::chunk, &S::key, tile::kAt> k_to_end;  // diag(e^{b_C - b}) K
  Op<&S::chunk, &S::value, tile::kB> v;
  Vec<&S::chunk> b, from_start, to_end;

  template <class F>
  void parts(F f) {
    f(m), f(k_to_end), f(v), f(b), f(from_start), f(to_end);
  }
};

// Storage for the outputs and the state.
template <class Engine, class S>
struct ScanSpace : ScanOutputSpace<Engine, S> {
  using Base = ScanOutputSpace<Engine, S>;
  typename Base::template Op<&S::chunk, &S::key, tile::kAt> k_to_end;

  template <class F>
  void parts(F f) {
    Base::parts(f), f(k_to_end);
  }
};

// b and the two exponentials of it; returns b_C.
template <class Engine, class Space>
WEFT_TILE float scan_decays(Engine& e, const typename Engine::InVector& log_decay, Space& w) {
  e.load(w.b, log_decay);
  e.cumsum(w.b);
  const float last = w.b.last();
  e.fill(w.from_start, [&](auto i) { return e.exp_down(w.b[i]); });
  e.fill(w.to_end, [&](auto i) { return e.exp_down(last - w.b[i]); });
  return last;
}

// q, k, v and the decays; returns b_C.
template <class Engine, class Space>
WEFT_TILE float scan_load(Engine& e, const ScanChunk<Engine>& a, Space& w) {
  const float last = scan_decays(e, a.log_decay, w);
  e.load(w.q, a.q);
  e.load(w.k, a.k);
  e.load(w.v, a.v);
  return last;
}

// Outputs of a chunk that has been loaded, from the state w.m before it.
template <class Engine, class Space>
WEFT_TILE void scan_output(Engine& e, const ScanChunk<Engine>& a, const typename Engine::Out& out,
                           Space& w) {
  using namespace tile;
  e.run(kLower, nt(w.q, w.k), map([&](auto i, auto j, auto x) {
          return e.select(e.inside(kLower, i, j), x * e.exp_down(w.b[i] - w.b[j]), 0.0f);
        }),
        put(w.p));
  e.run(kFull, nn(w.q, w.m),  // tokens before the chunk
        map([&](auto i, auto, auto x) { return x * w.from_start[i]; }),
        nn(w.p, w.v, Banded::kA, kLower),  // tokens inside it
        store(out, [&](auto, auto, auto x) { return x * a.scale; }));
}

// The state w.m taken through a chunk whose values and decays have been loaded; `to` (may be empty)
// gets it too.
template <class Engine, class Space>
WEFT_TILE void scan_carry(Engine& e, const ScanChunk<Engine>& a, float decay,
                          const typename Engine::Out& to, Space& w) {
  using namespace tile;
  e.load(w.k_to_end, a.k, [&](auto i, auto, auto x) { return x * w.to_end[i]; });
  const auto carried = map([&](auto i, auto j, auto x) { return x + w.m(i, j) * decay; });
  if (to.empty()) {
    e.run(kFull, tn(w.k_to_end, w.v), carried, put(w.m));
  } else {
    e.run(kFull, tn(w.k_to_end, w.v), carried, put(w.m), store(to));
  }
}

// Outputs of a chunk and the state after it, from the state w.m before it.
template <class Engine, class Space>
WEFT_TILE void scan_forward(Engine& e, const ScanChunk<Engine>& a, const typename Engine::Out& out,
                            const typename Engine::Out& state, Space& w) {
  const float decay = e.exp(scan_load(e, a, w));
  scan_output(e, a, out, w);
  scan_carry(e, a, decay, state, w);
}

// The state alone, bit for bit as scan_forward forms it; returns b_C.
template <class Engine, class Space>
WEFT_TILE float scan_state(Engine& e, const ScanChunk<Engine>& a, const typename Engine::Out& state,
                           Space& w) {
  const float last = scan_decays(e, a.log_decay, w);
  e.load(w.v, a.v);
  scan_carry(e, a, e.exp(last), state, w);
  return last;
}

}  // namespace weft::kernels::programs
