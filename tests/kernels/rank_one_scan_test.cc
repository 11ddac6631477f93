#include "kernels/scan/rank_one_scan.h"
#include "core/host_access.h"

#include "tests/kernels/kept_states.h"
#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

struct Case {
  std::vector<int32_t> documents;
  bool delta = false;  // alpha is not given
  int64_t heads = 1, key = 8, value = 8;
  bool states = true;  // initial and final states with cotangents
  DType dtype = DType::kF32;
  double forget = 0.1;  // size of the log decays
};

// The recurrence, token by token, in double, and its derivative in the opposite direction.
struct Naive {
  Numbers out, final_state, dq, dk, dv, dg, d_alpha, d_beta, d_initial;
};
struct Inputs {
  Numbers q, k, v, g, alpha, beta, initial, d_out, d_final;
};

// One head of one document, in the general form: M = diag(a) B + beta^T (alpha B) + k^T v.
struct Head {
  int64_t begin, end, head, heads, key, value, state;
  double scale;

  int64_t k(int64_t t) const { return (t * heads + head) * key; }
  int64_t v(int64_t t) const { return (t * heads + head) * value; }
};

Numbers read(const Head& h, const double* query, const Numbers& state) {
  Numbers z(static_cast<size_t>(h.value));
  for (int64_t a = 0; a < h.key; ++a) {
    for (int64_t b = 0; b < h.value; ++b) z[b] += query[a] * state[a * h.value + b];
  }
  return z;
}

std::vector<Numbers> states_of(const Inputs& in, const Head& h) {
  const auto first = in.initial.begin() + h.state;
  std::vector<Numbers> m{Numbers(first, first + h.key * h.value)};
  for (int64_t t = h.begin; t < h.end; ++t) {
    const Numbers z = read(h, &in.alpha[h.k(t)], m.back());
    Numbers next = m.back();
    for (int64_t a = 0; a < h.key; ++a) {
      for (int64_t b = 0; b < h.value; ++b) {
        double& x = next[a * h.value + b];
        x = std::exp(in.g[h.k(t) + a]) * x + in.beta[h.k(t) + a] * z[b] +
            in.k[h.k(t) + a] * in.v[h.v(t) + b];
      }
    }
    m.push_back(std::move(next));
  }
  return m;
}

void step_back(const Inputs& in, const Head& h, int64_t t, const Numbers& before, Numbers& dm,
               Naive& n) {
  const int64_t k = h.k(t), v = h.v(t);
  const Numbers z = read(h, &in.alpha[k], before);
  Numbers dz(static_cast<size_t>(h.value)), d_before(before.size());
  for (int64_t a = 0; a < h.key; ++a) {
    const double decay = std::exp(in.g[k + a]);
    for (int64_t b = 0; b < h.value; ++b) {
      const int64_t i = a * h.value + b;
      n.dk[k + a] += dm[i] * in.v[v + b];
      n.dv[v + b] += dm[i] * in.k[k + a];
      n.d_beta[k + a] += dm[i] * z[b];
      dz[b] += dm[i] * in.beta[k + a];
      n.dg[k + a] += dm[i] * decay * before[i];
      d_before[i] = dm[i] * decay;
    }
  }
  for (int64_t a = 0; a < h.key; ++a) {
    for (int64_t b = 0; b < h.value; ++b) {
      n.d_alpha[k + a] += dz[b] * before[a * h.value + b];
      d_before[a * h.value + b] += in.alpha[k + a] * dz[b];
    }
  }
  dm = std::move(d_before);
}

void naive_head(const Inputs& in, const Head& h, Naive& n) {
  const std::vector<Numbers> m = states_of(in, h);
  std::copy(m.back().begin(), m.back().end(), n.final_state.begin() + h.state);
  const auto d_final = in.d_final.begin() + h.state;
  Numbers dm(d_final, d_final + h.key * h.value);
  for (int64_t t = h.end - 1; t >= h.begin; --t) {
    const Numbers& now = m[t - h.begin + 1];
    for (int64_t a = 0; a < h.key; ++a) {
      for (int64_t b = 0; b < h.value; ++b) {
        const int64_t i = a * h.value + b;
        n.out[h.v(t) + b] += h.scale * in.q[h.k(t) + a] * now[i];
        n.dq[h.k(t) + a] += h.scale * in.d_out[h.v(t) + b] * now[i];
        dm[i] += h.scale * in.q[h.k(t) + a] * in.d_out[h.v(t) + b];
      }
    }
    step_back(in, h, t, m[t - h.begin], dm, n);
  }
  std::copy(dm.begin(), dm.end(), n.d_initial.begin() + h.state);
}

// The delta rule of strength beta [tokens, heads] in the general form, and its gradients from
// there.
Inputs general_form(Inputs in, int64_t key) {
  Inputs out = in;
  out.alpha.resize(in.k.size()), out.beta.resize(in.k.size());
  for (size_t i = 0; i < in.k.size(); ++i) {
    out.alpha[i] = -in.k[i] * std::exp(in.g[i]);
    out.beta[i] = out.k[i] = in.beta[i / key] * in.k[i];
  }
  return out;
}
void delta_form(const Inputs& in, int64_t key, Naive& n) {
  Numbers d_strength(in.beta.size());
  for (size_t i = 0; i < in.k.size(); ++i) {
    const double d_write = n.dk[i] + n.d_beta[i], decay = std::exp(in.g[i]);
    d_strength[i / key] += d_write * in.k[i];
    n.dg[i] -= n.d_alpha[i] * in.k[i] * decay;
    n.dk[i] = d_write * in.beta[i / key] - n.d_alpha[i] * decay;
  }
  n.d_beta = d_strength;
}

void store(const Tensor& t, int64_t i, double x) {
  if (t.dtype() == DType::kF32)
    host<float>(t)[i] = static_cast<float>(x);
  else
    host<bf16>(t)[i] = to_bf16(static_cast<float>(x));
}

// Rows of `width` numbers, each of length one.
Tensor unit_rows(Rig& rig, const char* name, const Case& c, int64_t width) {
  const Tensor t = rig.normal(name, {c.documents.back(), c.heads * c.key}, 1, c.dtype);
  const Numbers x = numbers(t);
  for (size_t row = 0; row < x.size(); row += width) {
    double sum = 0;
    for (int64_t a = 0; a < width; ++a) sum += x[row + a] * x[row + a];
    for (int64_t a = 0; a < width; ++a) store(t, row + a, x[row + a] / std::sqrt(sum));
  }
  return t;
}

// Inputs as the mixers make them: alpha = -kappa, beta = kappa * (0, 1) with kappa of length one;
// keys of length one and beta in (0, 1) for the delta rule.
struct Problem {
  Problem(Rig& rig, const Case& c) : c(c), documents(c.documents) {
    const int64_t tokens = c.documents.back();
    const auto n = static_cast<int64_t>(c.documents.size()) - 1;
    const Shape state{n, c.heads, c.key, c.value}, keys{tokens, c.heads * c.key};
    const Shape values{tokens, c.heads * c.value}, gates{tokens, c.heads};
    q = rig.normal("q", keys, 1, c.dtype);
    v = rig.normal("v", values, 1, c.dtype);
    d_out = rig.normal("d_out", values, 1, c.dtype);
    g = rig.normal("g", keys, c.forget);
    for (int64_t i = 0; i < g.elements(); ++i) host<float>(g)[i] = -std::abs(host<float>(g)[i]);
    beta = rig.normal("beta", c.delta ? gates : keys, 1, c.delta ? DType::kF32 : c.dtype);
    const Numbers raw = numbers(beta);
    const auto open = [](double x) { return 1 / (1 + std::exp(-x)); };
    if (c.delta) {
      k = unit_rows(rig, "k", c, c.key);
      for (size_t i = 0; i < raw.size(); ++i) store(beta, i, open(raw[i]));
    } else {
      k = rig.normal("k", keys, 1 / std::sqrt(c.key), c.dtype);
      alpha = unit_rows(rig, "alpha", c, c.key);
      const Numbers a = numbers(alpha);
      for (size_t i = 0; i < raw.size(); ++i) store(beta, i, -a[i] * open(raw[i]));
      d_alpha = rig.exec.empty(keys, c.dtype);
    }
    if (c.states) {
      initial = rig.normal("initial", state);
      d_final = rig.normal("d_final", state);
      final_state = rig.exec.empty(state);
      d_initial = rig.exec.empty(state);
    }
    out = rig.exec.empty(values, c.dtype), dv = rig.exec.empty(values, c.dtype);
    dq = rig.exec.empty(keys, c.dtype), dk = rig.exec.empty(keys, c.dtype);
    dg = rig.exec.empty(keys);
    d_beta = rig.exec.empty(beta.shape(), beta.dtype());
    scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.key)));
  }

  static ConstView seen(const Tensor& t) { return t.defined() ? ConstView(t) : ConstView{}; }
  static View wanted(const Tensor& t) { return t.defined() ? t.view() : View{}; }

  kernels::RankOneScan scan() const {
    return {q, k, v, g, seen(alpha), beta, documents, c.heads, c.key, c.value, scale};
  }
  void run(Exec& exec) {
    const Tensor kept = keeps ? exec.empty({kernels::rank_one_scan_kept(exec, scan())}) : Tensor{};
    kernels::rank_one_scan_forward(exec, scan(), seen(initial), out, wanted(final_state),
                                   wanted(kept));
    kernels::rank_one_scan_backward(exec, scan(), seen(initial), d_out, seen(d_final),
                                    {dq, dk, dv, dg, wanted(d_alpha), d_beta, wanted(d_initial)},
                                    seen(kept));
  }
  std::vector<Tensor> results() const {
    return {out, final_state, dq, dk, dv, dg, d_beta, d_initial};
  }

  bool keeps = false;  // states between chunks, from forward to backward

  Naive expected() const {
    const auto n = static_cast<int64_t>(documents.size()) - 1;
    const int64_t states = n * c.heads * c.key * c.value;
    const auto zeros = [](int64_t size) { return Numbers(static_cast<size_t>(size)); };
    Inputs in{numbers(q),    numbers(k),    numbers(v),     numbers(g),   {},
              numbers(beta), zeros(states), numbers(d_out), zeros(states)};
    if (!c.delta) in.alpha = numbers(alpha);
    if (c.states) in.initial = numbers(initial), in.d_final = numbers(d_final);
    const int64_t keys = k.elements(), values = v.elements();
    Naive want{zeros(values), zeros(states), zeros(keys), zeros(keys),  zeros(values),
               zeros(keys),   zeros(keys),   zeros(keys), zeros(states)};
    const Inputs general = c.delta ? general_form(in, c.key) : in;
    for (int64_t i = 0; i < n * c.heads; ++i) {
      const int64_t d = i / c.heads;
      naive_head(general,
                 {documents[d], documents[d + 1], i % c.heads, c.heads, c.key, c.value,
                  i * c.key * c.value, scale},
                 want);
    }
    if (c.delta) delta_form(in, c.key, want);
    return want;
  }

  Case c;
  std::vector<int32_t> documents;
  Tensor q, k, v, g, alpha, beta, d_out, initial, d_final;
  Tensor out, final_state, dq, dk, dv, dg, d_alpha, d_beta, d_initial;
  float scale;
};

// Sums run over up to a few hundred tokens times the head width; 1e-5 of the largest is some
// hundred roundings of f32, of which sqrt(300 * 128) = 200 are expected. For bf16 the final
// rounding counts.
void check(const Case& c) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(fmt::format("{}, {} tokens, {} heads, {} x {}, forget {}", name_of(isa),
                             c.documents.back(), c.heads, c.key, c.value, c.forget));
    Rig rig(2, isa);
    Problem p(rig, c);
    p.run(rig.exec);
    const Naive want = p.expected();
    const double f32 = chunk_tolerance(c.dtype, isa);
    const double tolerance = c.dtype == DType::kF32 ? f32 : 1e-2;
    EXPECT_TRUE(Near(p.out, want.out, tolerance));
    EXPECT_TRUE(Near(p.dq, want.dq, tolerance));
    EXPECT_TRUE(Near(p.dk, want.dk, tolerance));
    EXPECT_TRUE(Near(p.dv, want.dv, tolerance));
    EXPECT_TRUE(Near(p.dg, want.dg, f32));
    EXPECT_TRUE(Near(p.d_beta, want.d_beta, c.delta ? f32 : tolerance));
    if (!c.delta) {
      EXPECT_TRUE(Near(p.d_alpha, want.d_alpha, tolerance));
    }
    if (c.states) {
      EXPECT_TRUE(Near(p.final_state, want.final_state, f32));
      EXPECT_TRUE(Near(p.d_initial, want.d_initial, f32));
    }
  }
}

// Both forms of the recurrence.
class RankOneScan : public testing::TestWithParam<bool> {
 protected:
  static bool delta() { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Forms, RankOneScan, testing::Bool(), [](const auto& info) {
  return info.param ? std::string("Delta") : std::string("General");
});

// One token, around a block of 16, around a chunk of 64, more than four chunks.
TEST_P(RankOneScan, AgreesWithTheRecurrenceAtEveryLength) {
  for (const int32_t tokens : {1, 15, 16, 17, 37, 64, 65, 300})
    check({.documents = {0, tokens}, .delta = delta(), .key = 16});
}

TEST_P(RankOneScan, AgreesWithTheRecurrenceAtEveryHeadWidth) {
  for (const auto& [key, value] : {std::pair{5, 3}, {8, 128}, {24, 64}, {64, 8}, {128, 128}})
    check({.documents = {0, 131}, .delta = delta(), .key = key, .value = value});
}

TEST_P(RankOneScan, KeepsDocumentsApart) {
  check({.documents = {0, 1, 38, 38, 103, 104, 250},
         .delta = delta(),
         .heads = 2,
         .key = 16,
         .value = 24});
}

TEST_P(RankOneScan, TakesNoStates) {
  check({.documents = {0, 50, 200}, .delta = delta(), .heads = 3, .key = 24, .states = false});
}

// Between no decay at all and states forgotten completely inside a block: products of decays
// underflow, and nothing may overflow or become NaN.
TEST_P(RankOneScan, AgreesForEveryStrengthOfTheDecay) {
  for (const double forget : {0.0, 1.0, 5.0, 30.0, 1000.0}) {
    check({.documents = {0, 200},
           .delta = delta(),
           .heads = 2,
           .key = 16,
           .value = 16,
           .forget = forget});
  }
}

TEST_P(RankOneScan, ReadsAndWritesBf16) {
  check({.documents = {0, 65, 190},
         .delta = delta(),
         .heads = 2,
         .key = 24,
         .value = 64,
         .dtype = DType::kBF16});
}

// A document without tokens passes its state on, and the gradient of it back; also when there is no
// token.
TEST_P(RankOneScan, LeavesTheStateOfAnEmptyDocumentAlone) {
  for (const std::vector<int32_t>& documents : {std::vector<int32_t>{0, 0, 5, 5}, {0, 0}}) {
    Rig rig;
    Problem p(rig, {.documents = documents, .delta = delta(), .heads = 2});
    p.run(rig.exec);
    const int64_t last = static_cast<int64_t>(documents.size()) - 2;
    for (const int64_t d : {int64_t{0}, last}) {
      EXPECT_TRUE(SameBits(p.final_state.row(d), p.initial.row(d)));
      EXPECT_TRUE(SameBits(p.d_initial.row(d), p.d_final.row(d)));
    }
  }
}

// The same key again and again: the triangular system is as full as it gets.
TEST_P(RankOneScan, SurvivesRepeatedKeys) {
  Rig rig;
  Problem p(rig, {.documents = {0, 100}, .delta = delta(), .forget = 0.0});
  for (int64_t t = 1; t < 100; ++t) {
    for (const Tensor& x : {p.k, p.alpha, p.beta}) {
      if (!x.defined()) continue;
      const int64_t width = x.shape().back();
      std::copy_n(host<float>(x), width, host<float>(x) + t * width);
    }
  }
  p.run(rig.exec);
  const Naive want = p.expected();
  EXPECT_TRUE(Near(p.out, want.out, 1e-5));
  EXPECT_TRUE(Near(p.dk, want.dk, 1e-5));
  EXPECT_TRUE(Near(p.dg, want.dg, 1e-5));
  EXPECT_TRUE(Near(p.d_beta, want.d_beta, 1e-5));
}

// q, k and v as columns of one fused projection, and the output as columns of a wider matrix.
TEST_P(RankOneScan, TakesStridedRows) {
  Rig rig;
  Problem p(rig,
            {.documents = {0, 70}, .delta = delta(), .heads = 2, .value = 12, .states = false});
  p.run(rig.exec);
  const Tensor fused = rig.exec.empty({70, 16 + 16 + 24 + 24 + 3});
  for (int64_t t = 0; t < 70; ++t) {
    float* row = host<float>(fused) + t * fused.shape().back();
    std::copy_n(host<float>(p.q) + t * 16, 16, row);
    std::copy_n(host<float>(p.k) + t * 16, 16, row + 16);
    std::copy_n(host<float>(p.v) + t * 24, 24, row + 32);
  }
  kernels::RankOneScan in = p.scan();
  in.q = fused.view().columns(0, 16), in.k = fused.view().columns(16, 16);
  in.v = fused.view().columns(32, 24);
  const View out = fused.view().columns(56, 24);
  kernels::rank_one_scan_forward(rig.exec, in, {}, out, {});
  EXPECT_TRUE(SameBits(out, p.out));
}

TEST_P(RankOneScan, GivesTheSameBitsFromKeptStates) {
  expect_same_bits_from_kept_states<Problem>(Case{.documents = {}, .delta = delta()});
}

TEST_P(RankOneScan, GivesTheSameBitsForAnyNumberOfThreads) {
  const Case c{.documents = {0, 300, 431}, .delta = delta(), .heads = 3, .key = 16, .value = 16};
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
      EXPECT_TRUE(SameBits(p.d_beta, other.d_beta));
      EXPECT_TRUE(SameBits(p.d_initial, other.d_initial));
    }
  }
}

TEST(RankOneScanContract, RefusesShapesThatDoNotFit) {
  Rig rig;
  Problem p(rig, {.documents = {0, 5}, .delta = true});
  kernels::RankOneScan in = p.scan();
  in.beta = p.k;  // a vector for every token, but no alpha
  EXPECT_ANY_THROW(kernels::rank_one_scan_forward(rig.exec, in, {}, p.out, {}));
  in = p.scan();
  in.log_decay = p.beta;
  EXPECT_ANY_THROW(kernels::rank_one_scan_forward(rig.exec, in, {}, p.out, {}));
}

}  // namespace
}  // namespace weft::test
