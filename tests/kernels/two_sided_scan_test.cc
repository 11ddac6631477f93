// kernels/scan/diagonal_scan.h with decays of value channels, against the recurrence token by
// token.
#include <gtest/gtest.h>

#include <cmath>

#include "core/host_access.h"
#include "kernels/scan/diagonal_scan.h"
#include "tests/kernels/kept_states.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

using Numbers = std::vector<double>;

struct Case {
  std::vector<int32_t> documents;
  int64_t heads = 1, kv_heads = 1, key = 8, value = 8;
  bool key_decay = true;
  bool states = true;
  DType dtype = DType::kF32;
  double forget = 0.1;  // size of the log decays
};

struct Problem {
  Problem(Rig& rig, const Case& c) : c(c) {
    const int64_t tokens = c.documents.back();
    const Shape state{count(), c.heads, c.key, c.value};
    q = rig.normal("q", {tokens, c.heads * c.key}, 1, c.dtype);
    k = rig.normal("k", {tokens, c.kv_heads * c.key}, 1, c.dtype);
    v = rig.normal("v", {tokens, c.kv_heads * c.value}, 1, c.dtype);
    d_out = rig.normal("d_out", {tokens, c.heads * c.value}, 1, c.dtype);
    h = decays(rig, "h", {tokens, c.kv_heads * c.value}, c.forget), dh = rig.exec.empty(h.shape());
    if (c.key_decay) {
      g = decays(rig, "g", {tokens, c.kv_heads * c.key}, c.forget), dg = rig.exec.empty(g.shape());
    }
    if (c.states) {
      initial = rig.normal("initial", state), d_final = rig.normal("d_final", state);
      final_state = rig.exec.empty(state), d_initial = rig.exec.empty(state);
    }
    out = rig.exec.empty(d_out.shape(), c.dtype);
    dq = rig.exec.empty(q.shape(), c.dtype);
    dk = rig.exec.empty(k.shape(), c.dtype);
    dv = rig.exec.empty(v.shape(), c.dtype);
  }
  static Tensor decays(Rig& rig, const char* name, Shape shape, double forget) {
    const Tensor t = rig.normal(name, shape, forget);
    for (int64_t i = 0; i < t.elements(); ++i) host<float>(t)[i] = -std::abs(host<float>(t)[i]);
    return t;
  }
  int64_t count() const { return static_cast<int64_t>(c.documents.size()) - 1; }
  static ConstView seen(const Tensor& t) { return t.defined() ? ConstView(t) : ConstView{}; }
  static View wanted(const Tensor& t) { return t.defined() ? t.view() : View{}; }

  void run(Exec& exec) {
    const kernels::DiagonalScan scan{.q = q,
                                     .k = k,
                                     .v = v,
                                     .log_decay = seen(g),
                                     .bonus = {},
                                     .documents = c.documents,
                                     .heads = c.heads,
                                     .kv_heads = c.kv_heads,
                                     .key = c.key,
                                     .value = c.value,
                                     .scale = kScale,
                                     .value_log_decay = h};
    const Tensor kept = keeps ? exec.empty({kernels::diagonal_scan_kept(exec, scan)}) : Tensor{};
    kernels::diagonal_scan_forward(exec, scan, seen(initial), out, wanted(final_state),
                                   wanted(kept));
    kernels::diagonal_scan_backward(exec, scan, seen(initial), d_out, seen(d_final),
                                    {.dq = dq,
                                     .dk = dk,
                                     .dv = dv,
                                     .d_log_decay = wanted(dg),
                                     .d_bonus = {},
                                     .d_initial_state = wanted(d_initial),
                                     .d_value_log_decay = dh},
                                    seen(kept));
  }
  std::vector<Tensor> results() const { return {out, final_state, dq, dk, dv, dh, d_initial}; }

  bool keeps = false;  // states between chunks, from forward to backward

  static constexpr float kScale = 0.4f;
  Case c;
  Tensor q, k, v, g, h, d_out, initial, d_final;
  Tensor out, final_state, dq, dk, dv, dg, dh, d_initial;
};

struct Naive {
  explicit Naive(const Problem& p)
      : p(p),
        q(numbers(p.q)),
        k(numbers(p.k)),
        v(numbers(p.v)),
        h(numbers(p.h)),
        d_out(numbers(p.d_out)),
        out(d_out.size()),
        dq(q.size()),
        dk(k.size()),
        dv(v.size()),
        dg(k.size()),
        dh(v.size()) {
    const Case& c = p.c;
    const auto states = static_cast<size_t>(p.count() * c.heads * c.key * c.value);
    g = c.key_decay ? numbers(p.g) : Numbers(k.size(), 0.0);
    m = c.states ? numbers(p.initial) : Numbers(states, 0.0);
    dm = c.states ? numbers(p.d_final) : Numbers(states, 0.0);
    for (int64_t d = 0; d < p.count(); ++d) {
      for (int64_t head = 0; head < c.heads; ++head) run(d, head);
    }
  }

  void run(int64_t d, int64_t head) {
    const Case& c = p.c;
    const int64_t kv = head / (c.heads / c.kv_heads), size = c.key * c.value;
    double *state = m.data() + (d * c.heads + head) * size, *grad = dm.data() + (state - m.data());
    std::vector<Numbers> before;
    for (int64_t t = c.documents[d]; t < c.documents[d + 1]; ++t) {
      before.emplace_back(state, state + size);
      for (int64_t i = 0; i < size; ++i) {
        const int64_t a = (t * c.kv_heads + kv) * c.key + i / c.value,
                      b = (t * c.kv_heads + kv) * c.value + i % c.value;
        state[i] = std::exp(g[a] + h[b]) * state[i] + k[a] * v[b];
        out[(t * c.heads + head) * c.value + i % c.value] +=
            Problem::kScale * q[(t * c.heads + head) * c.key + i / c.value] * state[i];
      }
    }
    Numbers after(state, state + size);
    for (int64_t t = c.documents[d + 1] - 1; t >= c.documents[d]; --t) {
      const Numbers& was = before[t - c.documents[d]];
      for (int64_t i = 0; i < size; ++i) {
        const int64_t a = (t * c.kv_heads + kv) * c.key + i / c.value,
                      b = (t * c.kv_heads + kv) * c.value + i % c.value;
        const int64_t x = (t * c.heads + head) * c.key + i / c.value;
        const double d_o = Problem::kScale * d_out[(t * c.heads + head) * c.value + i % c.value];
        dq[x] += d_o * after[i];
        grad[i] += q[x] * d_o;
        dk[a] += grad[i] * v[b];
        dv[b] += grad[i] * k[a];
        const double decayed = std::exp(g[a] + h[b]) * grad[i];
        dg[a] += decayed * was[i];
        dh[b] += decayed * was[i];
        grad[i] = decayed;
      }
      after = was;
    }
  }

  const Problem& p;
  Numbers q, k, v, h, d_out, out, dq, dk, dv, dg, dh, g, m, dm;
};

// Gradients of decays are differences of sums of q dq and k dk, of size one or more, and so are
// their roundings, however little is left.
Numbers beside_one(const Numbers& x) {
  Numbers y = x;
  for (double& v : y) v += 1;
  return y;
}

// As in diagonal_scan_test.cc: some hundred roundings of f32.
void check(const Case& c) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(fmt::format("{}, {} tokens, {}/{} heads, {} x {}", name_of(isa),
                             c.documents.back(), c.heads, c.kv_heads, c.key, c.value));
    Rig rig(2, isa);
    Problem p(rig, c);
    p.run(rig.exec);
    const Naive want(p);
    const double tolerance = c.dtype == DType::kF32 ? 1e-5 : 1e-2;
    EXPECT_TRUE(Near(p.out, want.out, tolerance)) << "out";
    EXPECT_TRUE(Near(p.dq, want.dq, tolerance)) << "dq";
    EXPECT_TRUE(Near(p.dk, want.dk, tolerance)) << "dk";
    EXPECT_TRUE(Near(p.dv, want.dv, tolerance)) << "dv";
    EXPECT_TRUE(Near(beside_one(numbers(p.dh)), beside_one(want.dh), tolerance)) << "dh";
    if (c.key_decay) {
      EXPECT_TRUE(Near(beside_one(numbers(p.dg)), beside_one(want.dg), tolerance)) << "dg";
    }
    if (c.states) {
      EXPECT_TRUE(Near(p.final_state, want.m, tolerance)) << "final state";
      EXPECT_TRUE(Near(p.d_initial, want.dm, tolerance)) << "d initial state";
    }
  }
}

TEST(TwoSidedScan, AgreesWithTheRecurrenceAtEveryLength) {
  for (const int32_t tokens : {1, 2, 15, 16, 17, 37, 64, 65, 150}) {
    check({.documents = {0, tokens}, .key = 16, .value = 12});
  }
}

TEST(TwoSidedScan, AgreesWithTheRecurrenceAtEveryHeadWidth) {
  for (const int64_t key : {1, 8, 24, 64}) {
    for (const int64_t value : {3, 40}) check({.documents = {0, 101}, .key = key, .value = value});
  }
}

TEST(TwoSidedScan, NeedsNoDecayOfKeyChannels) {
  check({.documents = {0, 70, 140}, .heads = 4, .kv_heads = 2, .value = 6, .key_decay = false});
  for (const int32_t tokens : {1, 16, 17, 64, 65, 130}) {
    check({.documents = {0, tokens}, .key = 20, .value = 33, .key_decay = false});
  }
}

TEST(TwoSidedScan, KeepsDocumentsApartAndSharesInAGroup) {
  check({.documents = {0, 1, 38, 38, 103, 104, 190}, .heads = 6, .kv_heads = 2, .value = 24});
  check({.documents = {0, 50, 120}, .heads = 3, .kv_heads = 3, .states = false});
  check({.documents = {0, 0}, .heads = 2, .kv_heads = 1});
  check({.documents = {0, 0}, .heads = 2, .kv_heads = 1, .key_decay = false});
}

// Products of decays underflow, and nothing may become NaN.
TEST(TwoSidedScan, SurvivesDecaysThatUnderflow) {
  for (const double forget : {0.0, 3.0, 1000.0}) {
    check({.documents = {0, 130}, .heads = 2, .kv_heads = 2, .forget = forget});
  }
}

TEST(TwoSidedScan, ReadsAndWritesBf16) {
  check({.documents = {0, 65, 130}, .heads = 2, .kv_heads = 1, .dtype = DType::kBF16});
}

TEST(TwoSidedScan, GivesTheSameBitsFromKeptStates) {
  for (const bool key_decay : {false, true}) {
    expect_same_bits_from_kept_states<Problem>(Case{.documents = {}, .key_decay = key_decay});
  }
}

TEST(TwoSidedScan, GivesTheSameBitsForAnyNumberOfThreads) {
  const Case c{.documents = {0, 70, 71, 150}, .heads = 4, .kv_heads = 2};
  Rig one(1), three(3);
  Problem p(one, c), other(three, c);
  p.run(one.exec);
  other.run(three.exec);
  EXPECT_TRUE(SameBits(p.out, other.out));
  EXPECT_TRUE(SameBits(p.dk, other.dk));
  EXPECT_TRUE(SameBits(p.dv, other.dv));
  EXPECT_TRUE(SameBits(p.dg, other.dg));
  EXPECT_TRUE(SameBits(p.dh, other.dh));
}

}  // namespace
}  // namespace weft::test
