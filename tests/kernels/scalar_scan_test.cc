#include "kernels/scan/scalar_scan.h"
#include "core/host_access.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/kept_states.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

using Numbers = std::vector<double>;

enum class Decay { kNone, kStatic, kPerToken };

struct Case {
  std::vector<int32_t> documents;
  int64_t heads = 1, kv_heads = 1, key = 8, value = 8;
  Decay decay = Decay::kPerToken;
  bool states = true;  // initial and final states with cotangents
  DType dtype = DType::kF32;
  double forget = 0.1;  // size of the log decays
};

// The recurrence, token by token, in double, and its derivative in the opposite direction.
struct Naive {
  Numbers out, final_state, dq, dk, dv, dg, d_initial;
};
struct Inputs {
  Numbers q, k, v, g, initial, d_out, d_final;
};

struct Shape3 {
  int64_t key, value, heads, kv_heads;
};

// States after every token of [begin, end), the one before the first token included.
std::vector<Numbers> states_of(const Inputs& in, const Shape3& s, int64_t begin, int64_t end,
                               int64_t head, const double* initial) {
  std::vector<Numbers> m{Numbers(initial, initial + s.key * s.value)};
  const int64_t kv = head / (s.heads / s.kv_heads);
  for (int64_t t = begin; t < end; ++t) {
    Numbers next = m.back();
    const double decay = std::exp(in.g[t * s.heads + head]);
    for (int64_t a = 0; a < s.key; ++a) {
      for (int64_t b = 0; b < s.value; ++b) {
        next[a * s.value + b] =
            decay * next[a * s.value + b] +
            in.k[(t * s.kv_heads + kv) * s.key + a] * in.v[(t * s.kv_heads + kv) * s.value + b];
      }
    }
    m.push_back(std::move(next));
  }
  return m;
}

void naive_head(const Inputs& in, const Shape3& s, double scale, int64_t document, int64_t begin,
                int64_t end, int64_t head, Naive& n) {
  const int64_t kv = head / (s.heads / s.kv_heads), size = s.key * s.value;
  const int64_t at = (document * s.heads + head) * size;
  const std::vector<Numbers> m = states_of(in, s, begin, end, head, in.initial.data() + at);
  std::copy(m.back().begin(), m.back().end(), n.final_state.begin() + at);
  Numbers dm(in.d_final.begin() + at, in.d_final.begin() + at + size);
  for (int64_t t = end - 1; t >= begin; --t) {
    const double* q = &in.q[(t * s.heads + head) * s.key];
    const double* k = &in.k[(t * s.kv_heads + kv) * s.key];
    const double* v = &in.v[(t * s.kv_heads + kv) * s.value];
    const double* d_out = &in.d_out[(t * s.heads + head) * s.value];
    const double decay = std::exp(in.g[t * s.heads + head]);
    const Numbers& now = m[t - begin + 1];
    const Numbers& before = m[t - begin];
    double dg = 0;
    for (int64_t a = 0; a < s.key; ++a) {
      for (int64_t b = 0; b < s.value; ++b) {
        const int64_t i = a * s.value + b;
        n.out[(t * s.heads + head) * s.value + b] += scale * q[a] * now[i];
        n.dq[(t * s.heads + head) * s.key + a] += scale * d_out[b] * now[i];
        dm[i] += scale * q[a] * d_out[b];
        n.dk[(t * s.kv_heads + kv) * s.key + a] += v[b] * dm[i];
        n.dv[(t * s.kv_heads + kv) * s.value + b] += k[a] * dm[i];
        dg += decay * before[i] * dm[i];
        dm[i] *= decay;
      }
    }
    n.dg[t * s.heads + head] = dg;
  }
  std::copy(dm.begin(), dm.end(), n.d_initial.begin() + at);
}

struct Problem {
  Problem(Rig& rig, const Case& c) : c(c), documents(c.documents) {
    const int64_t tokens = c.documents.back();
    const auto n = static_cast<int64_t>(c.documents.size()) - 1;
    const Shape state{n, c.heads, c.key, c.value};
    q = rig.normal("q", {tokens, c.heads * c.key}, 1, c.dtype);
    k = rig.normal("k", {tokens, c.kv_heads * c.key}, 1, c.dtype);
    v = rig.normal("v", {tokens, c.kv_heads * c.value}, 1, c.dtype);
    d_out = rig.normal("d_out", {tokens, c.heads * c.value}, 1, c.dtype);
    if (c.decay != Decay::kNone) {
      g = rig.normal("g", c.decay == Decay::kStatic ? Shape{c.heads} : Shape{tokens, c.heads},
                     c.forget);
      for (int64_t i = 0; i < g.elements(); ++i) host<float>(g)[i] = -std::abs(host<float>(g)[i]);
    }
    if (c.states) {
      initial = rig.normal("initial", state);
      d_final = rig.normal("d_final", state);
      final_state = rig.exec.empty(state);
      d_initial = rig.exec.empty(state);
    }
    out = rig.exec.empty({tokens, c.heads * c.value}, c.dtype);
    dq = rig.exec.empty({tokens, c.heads * c.key}, c.dtype);
    dk = rig.exec.empty({tokens, c.kv_heads * c.key}, c.dtype);
    dv = rig.exec.empty({tokens, c.kv_heads * c.value}, c.dtype);
    if (c.decay == Decay::kPerToken) dg = rig.exec.empty({tokens, c.heads});
    scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.key)));
  }

  static ConstView seen(const Tensor& t) { return t.defined() ? ConstView(t) : ConstView{}; }
  static View wanted(const Tensor& t) { return t.defined() ? t.view() : View{}; }

  void run(Exec& exec) {
    const kernels::ScalarScan in{q,       k,          v,     seen(g), documents,
                                 c.heads, c.kv_heads, c.key, c.value, scale};
    const Tensor kept = keeps ? exec.empty({kernels::scalar_scan_kept(exec, in)}) : Tensor{};
    kernels::scalar_scan_forward(exec, in, seen(initial), out, wanted(final_state), wanted(kept));
    kernels::scalar_scan_backward(exec, in, seen(initial), d_out, seen(d_final),
                                  {dq, dk, dv, wanted(dg), wanted(d_initial)}, seen(kept));
  }
  std::vector<Tensor> results() const { return {out, final_state, dq, dk, dv, dg, d_initial}; }

  bool keeps = false;  // states between chunks, from forward to backward

  Naive expected() const {
    const int64_t tokens = documents.back();
    const auto n = static_cast<int64_t>(documents.size()) - 1;
    const auto zeros = [](int64_t count) { return Numbers(static_cast<size_t>(count), 0.0); };
    const int64_t state = n * c.heads * c.key * c.value;
    Inputs in{numbers(q),   numbers(k),     numbers(v),  zeros(tokens * c.heads),
              zeros(state), numbers(d_out), zeros(state)};
    for (int64_t i = 0; g.defined() && i < tokens * c.heads; ++i) {
      in.g[i] = host<float>(g)[c.decay == Decay::kStatic ? i % c.heads : i];
    }
    if (c.states) in.initial = numbers(initial), in.d_final = numbers(d_final);
    Naive out{zeros(tokens * c.heads * c.value),
              zeros(state),
              zeros(tokens * c.heads * c.key),
              zeros(tokens * c.kv_heads * c.key),
              zeros(tokens * c.kv_heads * c.value),
              zeros(tokens * c.heads),
              zeros(state)};
    const Shape3 s{c.key, c.value, c.heads, c.kv_heads};
    for (int64_t d = 0; d < n; ++d) {
      for (int64_t h = 0; h < c.heads; ++h) {
        naive_head(in, s, scale, d, documents[d], documents[d + 1], h, out);
      }
    }
    return out;
  }

  Case c;
  std::vector<int32_t> documents;
  Tensor q, k, v, g, d_out, initial, d_final, final_state, d_initial, out, dq, dk, dv, dg;
  float scale;
};

// Sums run over up to a few hundred tokens times the head width; 1e-5 of the largest is some
// hundred roundings of f32, of which sqrt(300 * 128) = 200 are expected. For bf16 the final
// rounding counts.
void check(const Case& c) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(fmt::format("{}, {} tokens, {}/{} heads, {} x {}", name_of(isa),
                             c.documents.back(), c.heads, c.kv_heads, c.key, c.value));
    Rig rig(2, isa);
    Problem p(rig, c);
    p.run(rig.exec);
    const Naive want = p.expected();
    const double tolerance = c.dtype == DType::kF32 ? 1e-5 : 1e-2;
    EXPECT_TRUE(Near(p.out, want.out, tolerance));
    EXPECT_TRUE(Near(p.dq, want.dq, tolerance));
    EXPECT_TRUE(Near(p.dk, want.dk, tolerance));
    EXPECT_TRUE(Near(p.dv, want.dv, tolerance));
    if (c.decay == Decay::kPerToken) {
      EXPECT_TRUE(Near(p.dg, want.dg, tolerance));
    }
    if (c.states) {
      EXPECT_TRUE(Near(p.final_state, want.final_state, tolerance));
      EXPECT_TRUE(Near(p.d_initial, want.d_initial, tolerance));
    }
  }
}

TEST(ScalarScan, AgreesWithTheRecurrenceAtEveryLength) {
  for (const int32_t tokens : {1, 37, 64, 65, 127, 300})
    check({.documents = {0, tokens}, .key = 16});
}

TEST(ScalarScan, AgreesWithTheRecurrenceAtEveryHeadWidth) {
  for (const int64_t key : {8, 16, 24, 64, 128}) {
    for (const int64_t value : {8, 24, 80, 128}) {
      check({.documents = {0, 131}, .heads = 1, .key = key, .value = value});
    }
  }
}

TEST(ScalarScan, KeepsDocumentsApart) {
  check({.documents = {0, 1, 38, 38, 103, 104, 250},
         .heads = 2,
         .kv_heads = 2,
         .key = 16,
         .value = 24});
}

// A document without tokens passes its state on, and the gradient of it back; also when there is no
// token.
TEST(ScalarScan, LeavesTheStateOfAnEmptyDocumentAlone) {
  for (const std::vector<int32_t>& documents : {std::vector<int32_t>{0, 0, 5, 5}, {0, 0}}) {
    Rig rig;
    Problem p(rig, {.documents = documents, .heads = 2, .kv_heads = 2});
    p.run(rig.exec);
    const int64_t last = static_cast<int64_t>(documents.size()) - 2;
    for (const int64_t d : {int64_t{0}, last}) {
      EXPECT_TRUE(SameBits(p.final_state.row(d), p.initial.row(d)));
      EXPECT_TRUE(SameBits(p.d_initial.row(d), p.d_final.row(d)));
    }
  }
}

TEST(ScalarScan, SharesKeysAndValuesInAGroup) {
  check({.documents = {0, 70, 140}, .heads = 6, .kv_heads = 2, .key = 16, .value = 8});
  check({.documents = {0, 70},
         .heads = 4,
         .kv_heads = 1,
         .key = 8,
         .value = 16,
         .dtype = DType::kBF16});
}

TEST(ScalarScan, TakesStaticDecaysAndNone) {
  for (const Decay decay : {Decay::kStatic, Decay::kNone}) {
    for (const bool states : {false, true}) {
      check({.documents = {0, 50, 200},
             .heads = 3,
             .kv_heads = 3,
             .key = 24,
             .value = 16,
             .decay = decay,
             .states = states});
    }
  }
}

// A state forgotten completely inside a chunk: e^{b_i} underflows, and nothing may become NaN.
TEST(ScalarScan, SurvivesDecaysThatUnderflow) {
  check({.documents = {0, 200}, .heads = 2, .kv_heads = 2, .key = 16, .value = 16, .forget = 30});
}

TEST(ScalarScan, ReadsAndWritesBf16) {
  check({.documents = {0, 65, 190},
         .heads = 2,
         .kv_heads = 2,
         .key = 24,
         .value = 64,
         .dtype = DType::kBF16});
}

// One or two heads of a long document are cut into pieces that are computed side by side.
TEST(ScalarScan, CutsLongDocumentsWhereThereIsLittleElseToDo) {
  check({.documents = {0, 2500}, .heads = 2, .kv_heads = 1, .key = 16, .value = 8, .forget = 0.01});
  check(
      {.documents = {0, 7, 2500}, .key = 8, .value = 16, .decay = Decay::kStatic, .forget = 0.01});
  check({.documents = {0, 2100}, .decay = Decay::kNone, .states = false});
}

// q, k and v as columns of one fused projection, and the output as columns of a wider matrix.
TEST(ScalarScan, TakesStridedRows) {
  Rig rig;
  Problem p(
      rig,
      {.documents = {0, 70}, .heads = 2, .kv_heads = 1, .key = 8, .value = 24, .states = false});
  p.run(rig.exec);
  const Tensor fused = rig.exec.empty({70, 16 + 8 + 24 + 48 + 3});
  for (int64_t t = 0; t < 70; ++t) {
    float* row = host<float>(fused) + t * fused.shape().back();
    std::copy_n(host<float>(p.q) + t * 16, 16, row);
    std::copy_n(host<float>(p.k) + t * 8, 8, row + 16);
    std::copy_n(host<float>(p.v) + t * 24, 24, row + 24);
  }
  const View q = fused.view().columns(0, 16), k = fused.view().columns(16, 8);
  const View v = fused.view().columns(24, 24), out = fused.view().columns(48, 48);
  kernels::scalar_scan_forward(
      rig.exec, {q, k, v, Problem::seen(p.g), p.documents, 2, 1, 8, 24, p.scale}, {}, out, {});
  EXPECT_TRUE(SameBits(out, p.out));
}

TEST(ScalarScan, GivesTheSameBitsForAnyNumberOfThreads) {
  const Case c{.documents = {0, 3000}, .heads = 2, .kv_heads = 1, .key = 16, .value = 16};
  for (const Isa isa : available_isas()) {
    Rig one(1, isa);
    Problem p(one, c);
    p.run(one.exec);
    for (const int threads : {2, 3}) {
      Rig more(threads, isa);
      Problem other(more, c);
      other.run(more.exec);
      EXPECT_TRUE(SameBits(p.out, other.out));
      EXPECT_TRUE(SameBits(p.final_state, other.final_state));
      EXPECT_TRUE(SameBits(p.dq, other.dq));
      EXPECT_TRUE(SameBits(p.dk, other.dk));
      EXPECT_TRUE(SameBits(p.dv, other.dv));
      EXPECT_TRUE(SameBits(p.dg, other.dg));
      EXPECT_TRUE(SameBits(p.d_initial, other.d_initial));
    }
  }
}

TEST(ScalarScan, GivesTheSameBitsFromKeptStates) {
  expect_same_bits_from_kept_states<Problem>(Case{});
}

// Heads that share q and k are heads of their own with equal q and k, whose gradients add up.
TEST(ScalarScan, SharesQueriesAndKeysInAGroup) {
  constexpr int64_t kTokens = 70, kHeads = 6, kShared = 2, kGroup = kHeads / kShared, kKey = 8;
  Rig rig;
  Problem p(rig, {.documents = {0, 30, kTokens}, .heads = kHeads, .kv_heads = kHeads});
  const Tensor q = rig.normal("q2", {kTokens, kShared * kKey}), k = rig.normal("k2", q.shape());
  for (int64_t i = 0; i < p.q.elements(); ++i) {
    const int64_t from = i / (kHeads * kKey) * kShared * kKey +
                         i % (kHeads * kKey) / (kGroup * kKey) * kKey + i % kKey;
    host<float>(p.q)[i] = host<float>(q)[from], host<float>(p.k)[i] = host<float>(k)[from];
  }
  p.run(rig.exec);
  Numbers dq(q.elements()), dk(k.elements());
  for (int64_t i = 0; i < p.q.elements(); ++i) {
    const int64_t to = i / (kHeads * kKey) * kShared * kKey +
                       i % (kHeads * kKey) / (kGroup * kKey) * kKey + i % kKey;
    dq[to] += host<float>(p.dq)[i], dk[to] += host<float>(p.dk)[i];
  }
  kernels::ScalarScan in{q, k, p.v, p.g, p.documents, kHeads, 0, kKey, p.c.value, p.scale, kShared};
  const Tensor out = rig.exec.empty(p.out.shape()),
               final_state = rig.exec.empty(p.final_state.shape());
  const Tensor got_dq = rig.exec.empty(q.shape()), got_dk = rig.exec.empty(q.shape()),
               dv = rig.exec.empty(p.dv.shape()), dg = rig.exec.empty(p.dg.shape());
  kernels::scalar_scan_forward(rig.exec, in, p.initial, out, final_state);
  kernels::scalar_scan_backward(rig.exec, in, p.initial, p.d_out, p.d_final,
                                {got_dq, got_dk, dv, dg, {}});
  EXPECT_TRUE(SameBits(out, p.out));
  EXPECT_TRUE(SameBits(final_state, p.final_state));
  EXPECT_TRUE(SameBits(dv, p.dv));
  EXPECT_TRUE(SameBits(dg, p.dg));
  EXPECT_TRUE(Near(got_dq, dq, 1e-6));
  EXPECT_TRUE(Near(got_dk, dk, 1e-6));
}

}  // namespace
}  // namespace weft::test
