#include "kernels/scan/delta_scan.h"
#include "core/host_access.h"

#include "tests/kernels/kept_states.h"
#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

struct Case {
  std::vector<int32_t> documents;
  int64_t heads = 1, qk_heads = 1, key = 8, value = 8;
  bool decay = true;
  bool states = true;  // initial and final states with cotangents
  DType dtype = DType::kF32;
  double forget = 0.1;               // size of the log decays
  double beta = 0.5, spread = 0.25;  // beta is within beta +- spread
};

// The recurrence, token by token, in double, and its derivative in the opposite direction.
struct Naive {
  Numbers out, final_state, dq, dk, dv, d_beta, dg, d_initial;
};
struct Inputs {
  Numbers q, k, v, beta, g, initial, d_out, d_final;
};

// One head of one document.
struct Head {
  int64_t begin, end, head, qk_head, heads, qk_heads, key, value, state;
  double scale;

  int64_t qk(int64_t t) const { return (t * qk_heads + qk_head) * key; }
  int64_t v(int64_t t) const { return (t * heads + head) * value; }
  int64_t gate(int64_t t) const { return t * heads + head; }
};

// e_t = v_t - e^{g_t} k_t M_{t-1}
Numbers error_of(const Inputs& in, const Head& h, int64_t t, const Numbers& before) {
  Numbers e(in.v.begin() + h.v(t), in.v.begin() + h.v(t) + h.value);
  const double decay = std::exp(in.g[h.gate(t)]);
  for (int64_t a = 0; a < h.key; ++a) {
    for (int64_t b = 0; b < h.value; ++b)
      e[b] -= decay * in.k[h.qk(t) + a] * before[a * h.value + b];
  }
  return e;
}

// States after every token, the one before the first token included.
std::vector<Numbers> states_of(const Inputs& in, const Head& h) {
  const auto first = in.initial.begin() + h.state;
  std::vector<Numbers> m{Numbers(first, first + h.key * h.value)};
  for (int64_t t = h.begin; t < h.end; ++t) {
    const Numbers e = error_of(in, h, t, m.back());
    Numbers next = m.back();
    const double decay = std::exp(in.g[h.gate(t)]), beta = in.beta[h.gate(t)];
    for (int64_t a = 0; a < h.key; ++a) {
      for (int64_t b = 0; b < h.value; ++b) {
        double& x = next[a * h.value + b];
        x = decay * x + beta * in.k[h.qk(t) + a] * e[b];
      }
    }
    m.push_back(std::move(next));
  }
  return m;
}

// Through M = c B + beta k^T e, e = v - c k B, with c the decay and B the state before.
void step_back(const Inputs& in, const Head& h, int64_t t, const Numbers& before, Numbers& dm,
               Naive& n) {
  const double decay = std::exp(in.g[h.gate(t)]), beta = in.beta[h.gate(t)];
  const double* k = &in.k[h.qk(t)];
  const Numbers e = error_of(in, h, t, before);
  Numbers de(static_cast<size_t>(h.value));
  double d_beta = 0, dg = 0;
  for (int64_t a = 0; a < h.key; ++a) {
    for (int64_t b = 0; b < h.value; ++b) {
      const double x = dm[a * h.value + b];
      n.dk[h.qk(t) + a] += beta * e[b] * x;
      d_beta += k[a] * e[b] * x;
      de[b] += beta * k[a] * x;
    }
  }
  for (int64_t b = 0; b < h.value; ++b) n.dv[h.v(t) + b] = de[b];
  for (int64_t a = 0; a < h.key; ++a) {
    for (int64_t b = 0; b < h.value; ++b) {
      const int64_t i = a * h.value + b;
      n.dk[h.qk(t) + a] -= decay * de[b] * before[i];
      dg += decay * before[i] * (dm[i] - k[a] * de[b]);
      dm[i] = decay * (dm[i] - k[a] * de[b]);
    }
  }
  n.d_beta[h.gate(t)] = d_beta;
  n.dg[h.gate(t)] = dg;
}

void naive_head(const Inputs& in, const Head& h, Naive& n) {
  const std::vector<Numbers> m = states_of(in, h);
  const int64_t size = h.key * h.value;
  std::copy(m.back().begin(), m.back().end(), n.final_state.begin() + h.state);
  Numbers dm(in.d_final.begin() + h.state, in.d_final.begin() + h.state + size);
  for (int64_t t = h.end - 1; t >= h.begin; --t) {
    const Numbers& now = m[t - h.begin + 1];
    for (int64_t a = 0; a < h.key; ++a) {
      for (int64_t b = 0; b < h.value; ++b) {
        const int64_t i = a * h.value + b;
        n.out[h.v(t) + b] += h.scale * in.q[h.qk(t) + a] * now[i];
        n.dq[h.qk(t) + a] += h.scale * in.d_out[h.v(t) + b] * now[i];
        dm[i] += h.scale * in.q[h.qk(t) + a] * in.d_out[h.v(t) + b];
      }
    }
    step_back(in, h, t, m[t - h.begin], dm, n);
  }
  std::copy(dm.begin(), dm.end(), n.d_initial.begin() + h.state);
}

// Keys have length one, as in the mixers.
void make_unit(const Tensor& keys, int64_t width) {
  const Numbers x = numbers(keys);
  for (size_t row = 0; row < x.size(); row += width) {
    double sum = 0;
    for (int64_t a = 0; a < width; ++a) sum += x[row + a] * x[row + a];
    for (int64_t a = 0; a < width; ++a) {
      const auto y = static_cast<float>(x[row + a] / std::sqrt(sum));
      if (keys.dtype() == DType::kF32)
        host<float>(keys)[row + a] = y;
      else
        host<bf16>(keys)[row + a] = to_bf16(y);
    }
  }
}

struct Problem {
  Problem(Rig& rig, const Case& c) : c(c), documents(c.documents) {
    const int64_t tokens = c.documents.back();
    const auto n = static_cast<int64_t>(c.documents.size()) - 1;
    const Shape state{n, c.heads, c.key, c.value};
    const Shape qk{tokens, c.qk_heads * c.key}, values{tokens, c.heads * c.value};
    q = rig.normal("q", qk, 1, c.dtype);
    k = rig.normal("k", qk, 1, c.dtype);
    make_unit(k, c.key);
    v = rig.normal("v", values, 1, c.dtype);
    d_out = rig.normal("d_out", values, 1, c.dtype);
    beta = rig.normal("beta", {tokens, c.heads});
    for (int64_t i = 0; i < beta.elements(); ++i) {
      float& x = host<float>(beta)[i];
      x = static_cast<float>(c.beta + c.spread * std::tanh(x));
    }
    if (c.decay) {
      g = rig.normal("g", {tokens, c.heads}, c.forget);
      for (int64_t i = 0; i < g.elements(); ++i) host<float>(g)[i] = -std::abs(host<float>(g)[i]);
      dg = rig.exec.empty({tokens, c.heads});
    }
    if (c.states) {
      initial = rig.normal("initial", state);
      d_final = rig.normal("d_final", state);
      final_state = rig.exec.empty(state);
      d_initial = rig.exec.empty(state);
    }
    out = rig.exec.empty(values, c.dtype);
    dq = rig.exec.empty(qk, c.dtype);
    dk = rig.exec.empty(qk, c.dtype);
    dv = rig.exec.empty(values, c.dtype);
    d_beta = rig.exec.empty({tokens, c.heads});
    scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.key)));
  }

  static ConstView seen(const Tensor& t) { return t.defined() ? ConstView(t) : ConstView{}; }
  static View wanted(const Tensor& t) { return t.defined() ? t.view() : View{}; }

  kernels::DeltaScan scan() const {
    return {q, k, v, beta, seen(g), documents, c.heads, c.qk_heads, c.key, c.value, scale};
  }
  void run(Exec& exec) {
    const Tensor kept = keeps ? exec.empty({kernels::delta_scan_kept(exec, scan())}) : Tensor{};
    kernels::delta_scan_forward(exec, scan(), seen(initial), out, wanted(final_state),
                                wanted(kept));
    kernels::delta_scan_backward(exec, scan(), seen(initial), d_out, seen(d_final),
                                 {dq, dk, dv, d_beta, wanted(dg), wanted(d_initial)}, seen(kept));
  }
  std::vector<Tensor> results() const {
    return {out, final_state, dq, dk, dv, d_beta, dg, d_initial};
  }

  bool keeps = false;  // states between chunks, from forward to backward

  Naive expected() const {
    const auto zeros = [](int64_t count) { return Numbers(static_cast<size_t>(count), 0.0); };
    const auto n = static_cast<int64_t>(documents.size()) - 1;
    const int64_t gates = documents.back() * c.heads, size = c.key * c.value;
    const int64_t states = n * c.heads * size;
    Inputs in{numbers(q),   numbers(k),    numbers(v),     numbers(beta),
              zeros(gates), zeros(states), numbers(d_out), zeros(states)};
    if (c.decay) in.g = numbers(g);
    if (c.states) in.initial = numbers(initial), in.d_final = numbers(d_final);
    Naive want{zeros(v.elements()), zeros(states), zeros(q.elements()), zeros(k.elements()),
               zeros(v.elements()), zeros(gates),  zeros(gates),        zeros(states)};
    for (int64_t d = 0; d < n; ++d) {
      for (int64_t h = 0; h < c.heads; ++h) {
        naive_head(in,
                   {documents[d], documents[d + 1], h, h / (c.heads / c.qk_heads), c.heads,
                    c.qk_heads, c.key, c.value, (d * c.heads + h) * size, scale},
                   want);
      }
    }
    return want;
  }

  Case c;
  std::vector<int32_t> documents;
  Tensor q, k, v, beta, g, d_out, initial, d_final;
  Tensor out, final_state, dq, dk, dv, d_beta, dg, d_initial;
  float scale;
};

// Sums run over up to a few hundred tokens times the head width; 1e-5 of the largest is some
// hundred roundings of f32, of which sqrt(300 * 128) = 200 are expected. For bf16 the final
// rounding counts.
void check(const Case& c) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(fmt::format("{}, {} tokens, {}/{} heads, {} x {}, beta {}", name_of(isa),
                             c.documents.back(), c.heads, c.qk_heads, c.key, c.value, c.beta));
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
    EXPECT_TRUE(Near(p.d_beta, want.d_beta, f32));
    if (c.decay) {
      EXPECT_TRUE(Near(p.dg, want.dg, f32));
    }
    if (c.states) {
      EXPECT_TRUE(Near(p.final_state, want.final_state, f32));
      EXPECT_TRUE(Near(p.d_initial, want.d_initial, f32));
    }
  }
}

TEST(DeltaScan, AgreesWithTheRecurrenceAtEveryLength) {
  for (const int32_t tokens : {1, 15, 16, 17, 37, 64, 65, 300})
    check({.documents = {0, tokens}, .key = 16});
}

TEST(DeltaScan, AgreesWithTheRecurrenceAtEveryHeadWidth) {
  for (const auto& [key, value] : {std::pair{8, 128}, {16, 24}, {24, 64}, {64, 8}, {128, 128}})
    check({.documents = {0, 131}, .key = key, .value = value});
}

TEST(DeltaScan, KeepsDocumentsApart) {
  check({.documents = {0, 1, 38, 38, 103, 104, 250},
         .heads = 2,
         .qk_heads = 2,
         .key = 16,
         .value = 24});
}

// A document without tokens passes its state on, and the gradient of it back; also when there is no
// token.
TEST(DeltaScan, LeavesTheStateOfAnEmptyDocumentAlone) {
  for (const std::vector<int32_t>& documents : {std::vector<int32_t>{0, 0, 5, 5}, {0, 0}}) {
    Rig rig;
    Problem p(rig, {.documents = documents, .heads = 2, .qk_heads = 2});
    p.run(rig.exec);
    const int64_t last = static_cast<int64_t>(documents.size()) - 2;
    for (const int64_t d : {int64_t{0}, last}) {
      EXPECT_TRUE(SameBits(p.final_state.row(d), p.initial.row(d)));
      EXPECT_TRUE(SameBits(p.d_initial.row(d), p.d_final.row(d)));
    }
  }
}

TEST(DeltaScan, SharesQueriesAndKeysInAGroup) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    check({.documents = {0, 70, 140},
           .heads = 4,
           .qk_heads = 2,
           .key = 16,
           .value = 8,
           .dtype = dtype});
  }
}

TEST(DeltaScan, TakesNoDecayAndNoStates) {
  for (const bool decay : {false, true}) {
    for (const bool states : {false, true}) {
      check({.documents = {0, 50, 200},
             .heads = 3,
             .qk_heads = 3,
             .key = 24,
             .value = 16,
             .decay = decay,
             .states = states});
    }
  }
}

// Nothing is written; what is written is all there is; every step is a reflection and nothing
// decays.
TEST(DeltaScan, AgreesAtTheEndsOfBeta) {
  for (const double beta : {0.001, 1.0, 1.999}) {
    for (const bool decay : {false, true}) {
      check({.documents = {0, 300},
             .key = 16,
             .value = 24,
             .decay = decay,
             .beta = beta,
             .spread = 0.001});
    }
  }
}

// The same key again and again: the triangular system is as full as it gets.
TEST(DeltaScan, SurvivesRepeatedKeys) {
  Rig rig;
  Problem p(rig, {.documents = {0, 100}, .decay = false, .beta = 1.0, .spread = 0.9});
  for (int64_t t = 1; t < 100; ++t) std::copy_n(host<float>(p.k), 8, host<float>(p.k) + t * 8);
  p.run(rig.exec);
  const Naive want = p.expected();
  EXPECT_TRUE(Near(p.out, want.out, 1e-5));
  EXPECT_TRUE(Near(p.dk, want.dk, 1e-5));
  EXPECT_TRUE(Near(p.d_beta, want.d_beta, 1e-5));
}

// A state forgotten completely inside a chunk: e^{b_i} underflows, and nothing may become NaN.
TEST(DeltaScan, SurvivesDecaysThatUnderflow) {
  check({.documents = {0, 200}, .heads = 2, .qk_heads = 2, .key = 16, .value = 16, .forget = 30});
}

TEST(DeltaScan, ReadsAndWritesBf16) {
  check({.documents = {0, 65, 190},
         .heads = 2,
         .qk_heads = 2,
         .key = 24,
         .value = 64,
         .dtype = DType::kBF16});
}

// q, k and v as columns of one fused projection, and the output as columns of a wider matrix.
TEST(DeltaScan, TakesStridedRows) {
  Rig rig;
  Problem p(
      rig,
      {.documents = {0, 70}, .heads = 2, .qk_heads = 1, .key = 8, .value = 24, .states = false});
  p.run(rig.exec);
  const Tensor fused = rig.exec.empty({70, 8 + 8 + 48 + 48 + 3});
  for (int64_t t = 0; t < 70; ++t) {
    float* row = host<float>(fused) + t * fused.shape().back();
    std::copy_n(host<float>(p.q) + t * 8, 8, row);
    std::copy_n(host<float>(p.k) + t * 8, 8, row + 8);
    std::copy_n(host<float>(p.v) + t * 48, 48, row + 16);
  }
  kernels::DeltaScan in = p.scan();
  in.q = fused.view().columns(0, 8), in.k = fused.view().columns(8, 8);
  in.v = fused.view().columns(16, 48);
  const View out = fused.view().columns(64, 48);
  kernels::delta_scan_forward(rig.exec, in, {}, out, {});
  EXPECT_TRUE(SameBits(out, p.out));
}

TEST(DeltaScan, GivesTheSameBitsFromKeptStates) {
  expect_same_bits_from_kept_states<Problem>(Case{});
}

TEST(DeltaScan, GivesTheSameBitsForAnyNumberOfThreads) {
  const Case c{.documents = {0, 300, 431}, .heads = 4, .qk_heads = 2, .key = 16, .value = 16};
  for (const Isa isa : available_isas()) {
    Rig one(1, isa);
    Problem p(one, c);
    p.run(one.exec);
    for (const int threads : {2, 3}) {
      Rig more(threads, isa);
      Problem other(more, c);
      other.run(more.exec);
      const auto pairs = {std::pair{p.out, other.out},
                          {p.final_state, other.final_state},
                          {p.dq, other.dq},
                          {p.dk, other.dk},
                          {p.dv, other.dv},
                          {p.d_beta, other.d_beta},
                          {p.dg, other.dg},
                          {p.d_initial, other.d_initial}};
      for (const auto& [a, b] : pairs) EXPECT_TRUE(SameBits(a, b));
    }
  }
}

}  // namespace
}  // namespace weft::test
