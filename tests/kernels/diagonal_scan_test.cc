#include "kernels/scan/diagonal_scan.h"
#include "core/host_access.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/kept_states.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

using Numbers = std::vector<double>;

struct Case {
  std::vector<int32_t> documents;
  int64_t heads = 1, kv_heads = 1, key = 8, value = 8;
  bool bonus = false;
  bool states = true;  // initial and final states with cotangents
  DType dtype = DType::kF32;
  double forget = 0.1;  // size of the log decays
};

struct Inputs {
  Numbers q, k, v, g, u, initial, d_out, d_final;
};
struct Results {
  Numbers out, final_state, dq, dk, dv, dg, du, d_initial;
};

// One head of one document: the recurrence token by token, and its derivative in the opposite
// direction, in double.
class NaiveHead {
 public:
  NaiveHead(const Inputs& in, const Case& c, double scale, int64_t document, int64_t head)
      : in_(in),
        c_(c),
        scale_(scale),
        head_(head),
        kv_(head / (c.heads / c.kv_heads)),
        begin_(c.documents[document]),
        end_(c.documents[document + 1]),
        state_((document * c.heads + head) * c.key * c.value) {}

  void run(Results& r) {
    const int64_t size = c_.key * c_.value;
    std::vector<Numbers> m{
        Numbers(in_.initial.begin() + state_, in_.initial.begin() + state_ + size)};
    for (int64_t t = begin_; t < end_; ++t) m.push_back(next(m.back(), t));
    std::copy(m.back().begin(), m.back().end(), r.final_state.begin() + state_);
    Numbers dm(in_.d_final.begin() + state_, in_.d_final.begin() + state_ + size);
    for (int64_t t = end_ - 1; t >= begin_; --t)
      step_back(t, m[t - begin_], m[t - begin_ + 1], dm, r);
    std::copy(dm.begin(), dm.end(), r.d_initial.begin() + state_);
  }

 private:
  int64_t q_at(int64_t t) const { return (t * c_.heads + head_) * c_.key; }
  int64_t o_at(int64_t t) const { return (t * c_.heads + head_) * c_.value; }
  int64_t k_at(int64_t t) const { return (t * c_.kv_heads + kv_) * c_.key; }
  int64_t v_at(int64_t t) const { return (t * c_.kv_heads + kv_) * c_.value; }

  Numbers next(Numbers m, int64_t t) const {
    for (int64_t a = 0; a < c_.key; ++a) {
      const double decay = std::exp(in_.g[k_at(t) + a]);
      for (int64_t b = 0; b < c_.value; ++b) {
        double& x = m[a * c_.value + b];
        x = decay * x + in_.k[k_at(t) + a] * in_.v[v_at(t) + b];
      }
    }
    return m;
  }

  void step_back(int64_t t, const Numbers& before, const Numbers& after, Numbers& dm, Results& r) {
    for (int64_t a = 0; a < c_.key; ++a) {
      const double q = in_.q[q_at(t) + a], k = in_.k[k_at(t) + a];
      const double u = c_.bonus ? in_.u[head_ * c_.key + a] : 0;
      const double decay = std::exp(in_.g[k_at(t) + a]);
      for (int64_t b = 0; b < c_.value; ++b) {
        const int64_t i = a * c_.value + b;
        const double v = in_.v[v_at(t) + b], d_out = scale_ * in_.d_out[o_at(t) + b];
        const double seen = c_.bonus ? before[i] + u * k * v : after[i];
        r.out[o_at(t) + b] += scale_ * q * seen;
        r.dq[q_at(t) + a] += d_out * seen;
        if (c_.bonus) r.du[head_ * c_.key + a] += d_out * q * k * v;
        const double written = dm[i] + q * d_out * (c_.bonus ? u : 1);
        r.dk[k_at(t) + a] += v * written;
        r.dv[v_at(t) + b] += k * written;
        const double kept = c_.bonus ? dm[i] : written;
        r.dg[k_at(t) + a] += decay * before[i] * kept;
        dm[i] = decay * kept + (c_.bonus ? q * d_out : 0);
      }
    }
  }

  const Inputs& in_;
  const Case& c_;
  double scale_;
  int64_t head_, kv_, begin_, end_, state_;
};

struct Problem {
  Problem(Rig& rig, const Case& c) : c(c) {
    const int64_t tokens = c.documents.back();
    const auto n = static_cast<int64_t>(c.documents.size()) - 1;
    const Shape state{n, c.heads, c.key, c.value};
    q = rig.normal("q", {tokens, c.heads * c.key}, 1, c.dtype);
    k = rig.normal("k", {tokens, c.kv_heads * c.key}, 1, c.dtype);
    v = rig.normal("v", {tokens, c.kv_heads * c.value}, 1, c.dtype);
    d_out = rig.normal("d_out", {tokens, c.heads * c.value}, 1, c.dtype);
    g = rig.normal("g", {tokens, c.kv_heads * c.key}, c.forget);
    for (int64_t i = 0; i < g.elements(); ++i) host<float>(g)[i] = -std::abs(host<float>(g)[i]);
    if (c.bonus) {
      u = rig.normal("u", {c.heads * c.key});
      du = rig.exec.empty({c.heads * c.key});
      std::fill_n(host<float>(du), du.elements(), 0.0f);
    }
    if (c.states) {
      initial = rig.normal("initial", state);
      d_final = rig.normal("d_final", state);
      final_state = rig.exec.empty(state);
      d_initial = rig.exec.empty(state);
    }
    out = rig.exec.empty({tokens, c.heads * c.value}, c.dtype);
    dq = rig.exec.empty(q.shape(), c.dtype);
    dk = rig.exec.empty(k.shape(), c.dtype);
    dv = rig.exec.empty(v.shape(), c.dtype);
    dg = rig.exec.empty(g.shape());
    scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.key)));
  }

  static ConstView seen(const Tensor& t) { return t.defined() ? ConstView(t) : ConstView{}; }
  static View wanted(const Tensor& t) { return t.defined() ? t.view() : View{}; }

  kernels::DiagonalScan scan() const {
    return {q, k, v, g, seen(u), c.documents, c.heads, c.kv_heads, c.key, c.value, scale};
  }
  void run(Exec& exec) {
    const Tensor kept = keeps ? exec.empty({kernels::diagonal_scan_kept(exec, scan())}) : Tensor{};
    kernels::diagonal_scan_forward(exec, scan(), seen(initial), out, wanted(final_state),
                                   wanted(kept));
    kernels::diagonal_scan_backward(exec, scan(), seen(initial), d_out, seen(d_final),
                                    {dq, dk, dv, dg, wanted(du), wanted(d_initial)}, seen(kept));
  }
  std::vector<Tensor> results() const { return {out, final_state, dq, dk, dv, dg, d_initial}; }

  bool keeps = false;  // states between chunks, from forward to backward

  Results expected() const {
    const auto n = static_cast<int64_t>(c.documents.size()) - 1;
    const auto zeros = [](int64_t count) { return Numbers(static_cast<size_t>(count), 0.0); };
    const int64_t state = n * c.heads * c.key * c.value;
    Inputs in{numbers(q), numbers(k),   numbers(v),     numbers(g),
              {},         zeros(state), numbers(d_out), zeros(state)};
    if (c.bonus) in.u = numbers(u);
    if (c.states) in.initial = numbers(initial), in.d_final = numbers(d_final);
    Results r{zeros(out.elements()),  zeros(state),        zeros(q.elements()),
              zeros(k.elements()),    zeros(v.elements()), zeros(g.elements()),
              zeros(c.heads * c.key), zeros(state)};
    for (int64_t d = 0; d < n; ++d) {
      for (int64_t h = 0; h < c.heads; ++h) NaiveHead(in, c, scale, d, h).run(r);
    }
    return r;
  }

  Case c;
  Tensor q, k, v, g, u, d_out, initial, d_final;
  Tensor out, final_state, dq, dk, dv, dg, du, d_initial;
  float scale;
};

// Sums run over up to a few hundred tokens times the head width; 1e-5 of the largest is some
// hundred roundings of f32, of which sqrt(300 * 128) = 200 are expected. For bf16 the final
// rounding counts.
void check_once(const Case& c) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(fmt::format("{}, {} tokens, {}/{} heads, {} x {}, {}", name_of(isa),
                             c.documents.back(), c.heads, c.kv_heads, c.key, c.value,
                             c.bonus ? "bonus" : "no bonus"));
    Rig rig(2, isa);
    Problem p(rig, c);
    p.run(rig.exec);
    const Results want = p.expected();
    const double tolerance = c.dtype == DType::kF32 ? 1e-5 : 1e-2;
    EXPECT_TRUE(Near(p.out, want.out, tolerance)) << "out";
    EXPECT_TRUE(Near(p.dq, want.dq, tolerance)) << "dq";
    EXPECT_TRUE(Near(p.dk, want.dk, tolerance)) << "dk";
    EXPECT_TRUE(Near(p.dv, want.dv, tolerance)) << "dv";
    EXPECT_TRUE(Near(p.dg, want.dg, tolerance)) << "dg";
    if (c.bonus) {
      EXPECT_TRUE(Near(p.du, want.du, tolerance)) << "du";
    }
    if (c.states) {
      EXPECT_TRUE(Near(p.final_state, want.final_state, tolerance)) << "final state";
      EXPECT_TRUE(Near(p.d_initial, want.d_initial, tolerance)) << "d initial state";
    }
  }
}

void check(Case c) {
  for (const bool bonus : {false, true}) {
    c.bonus = bonus;
    check_once(c);
  }
}

TEST(DiagonalScan, AgreesWithTheRecurrenceAtEveryLength) {
  for (const int32_t tokens : {1, 2, 15, 16, 17, 37, 49, 64, 65, 300}) {
    check({.documents = {0, tokens}, .key = 16});
  }
}

TEST(DiagonalScan, AgreesWithTheRecurrenceAtEveryHeadWidth) {
  for (const int64_t key : {1, 8, 16, 24, 64, 128}) {
    for (const int64_t value : {3, 24, 128}) {
      check({.documents = {0, 131}, .key = key, .value = value});
    }
  }
}

TEST(DiagonalScan, KeepsDocumentsApart) {
  check({.documents = {0, 1, 38, 38, 103, 104, 250},
         .heads = 2,
         .kv_heads = 2,
         .key = 16,
         .value = 24});
}

// A document without tokens passes its state on, and the gradient of it back; also when there is no
// token.
TEST(DiagonalScan, LeavesTheStateOfAnEmptyDocumentAlone) {
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

TEST(DiagonalScan, SharesKeysValuesAndDecaysInAGroup) {
  check({.documents = {0, 70, 140}, .heads = 6, .kv_heads = 2, .key = 16, .value = 8});
  check({.documents = {0, 70},
         .heads = 4,
         .kv_heads = 1,
         .key = 8,
         .value = 16,
         .dtype = DType::kBF16});
}

TEST(DiagonalScan, StartsFromZeroWhereNoStateIsGiven) {
  check({.documents = {0, 50, 200},
         .heads = 3,
         .kv_heads = 3,
         .key = 24,
         .value = 16,
         .states = false});
}

// A state forgotten completely inside a chunk or inside a block: products of decays underflow, and
// nothing may become NaN.
TEST(DiagonalScan, SurvivesDecaysThatUnderflow) {
  for (const double forget : {3.0, 30.0, 1000.0}) {
    check({.documents = {0, 200},
           .heads = 2,
           .kv_heads = 2,
           .key = 16,
           .value = 16,
           .forget = forget});
  }
}

TEST(DiagonalScan, TakesDecaysOfZero) {
  check({.documents = {0, 150}, .heads = 2, .kv_heads = 1, .key = 8, .value = 24, .forget = 0});
}

TEST(DiagonalScan, ReadsAndWritesBf16) {
  check({.documents = {0, 65, 190},
         .heads = 2,
         .kv_heads = 2,
         .key = 24,
         .value = 64,
         .dtype = DType::kBF16});
}

// q, k and v as columns of one fused projection, and the output as columns of a wider matrix.
TEST(DiagonalScan, TakesStridedRows) {
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
  kernels::DiagonalScan scan = p.scan();
  const View columns = fused.view(), out = columns.columns(48, 48);
  scan.q = columns.columns(0, 16), scan.k = columns.columns(16, 8);
  scan.v = columns.columns(24, 24);
  kernels::diagonal_scan_forward(rig.exec, scan, {}, out, {});
  EXPECT_TRUE(SameBits(out, p.out));
}

TEST(DiagonalScan, AddsToTheGradientOfTheBonus) {
  Rig rig;
  Problem p(rig, {.documents = {0, 40, 90}, .heads = 2, .kv_heads = 2, .bonus = true});
  p.run(rig.exec);
  const Numbers once = numbers(p.du);
  p.run(rig.exec);
  Numbers twice = once;
  for (double& x : twice) x *= 2;
  EXPECT_TRUE(Near(p.du, twice, 1e-6));
}

TEST(DiagonalScan, GivesTheSameBitsFromKeptStates) {
  expect_same_bits_from_kept_states<Problem>(Case{});
}

TEST(DiagonalScan, GivesTheSameBitsForAnyNumberOfThreads) {
  const Case c{.documents = {0, 130, 131, 300},
               .heads = 4,
               .kv_heads = 2,
               .key = 16,
               .value = 16,
               .bonus = true};
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
      EXPECT_TRUE(SameBits(p.du, other.du));
      EXPECT_TRUE(SameBits(p.d_initial, other.d_initial));
    }
  }
}

}  // namespace
}  // namespace weft::test
