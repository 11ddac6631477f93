// The stabilised formulas of the specification in double, compared with the unstabilised scan.
#include "core/host_access.h"
#include "layers/recurrence/mlstm.h"

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

constexpr int64_t kHeads = 2, kKey = 3, kValue = 5;

struct Inputs {
  Numbers q, k, v, i, f, c, n, m;  // per token [heads, ...]; c, n, m: the entering state
};
struct Outputs {
  Numbers h, c, n, m;
  // Largest cancellation in q . n: the sum of the magnitudes of its terms, of all tokens, over the
  // denominator.
  double cancelled = 0;
};

// One document.
Outputs naive(const Inputs& in, int64_t tokens) {
  Outputs out{Numbers(static_cast<size_t>(tokens * kHeads * kValue)), in.c, in.n, in.m};
  Numbers sizes = in.n;  // magnitudes of the terms of n
  for (double& x : sizes) x = std::abs(x);
  const double scale = 1 / std::sqrt(static_cast<double>(kKey));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t head = 0; head < kHeads; ++head) {
      const int64_t at = t * kHeads + head;
      const double l = -std::log1p(std::exp(-in.f[at])), before = out.m[head];
      const double m = std::max(l + before, in.i[at]);
      const double keep = std::exp(l + before - m), write = std::exp(in.i[at] - m);
      out.m[head] = m;
      double qn = 0, terms = 0;
      Numbers read(kValue);
      for (int64_t a = 0; a < kKey; ++a) {
        const double k = in.k[at * kKey + a], q = scale * in.q[at * kKey + a];
        double& n = out.n[head * kKey + a];
        n = keep * n + write * k;
        qn += q * n;
        double& size = sizes[head * kKey + a];
        size = keep * size + write * std::abs(k);
        terms += std::abs(q) * size;
        for (int64_t b = 0; b < kValue; ++b) {
          double& c = out.c[(head * kKey + a) * kValue + b];
          c = keep * c + write * k * in.v[at * kValue + b];
          read[b] += q * c;
        }
      }
      const double denominator = std::max(std::abs(qn), std::exp(-m)) + 1e-6;
      out.cancelled = std::max(out.cancelled, terms / denominator);
      for (int64_t b = 0; b < kValue; ++b) out.h[at * kValue + b] = read[b] / denominator;
    }
  }
  return out;
}

struct Problem {
  Problem(Rig& rig, int64_t tokens, double gates)
      : tokens(tokens),
        sequence(make_sequence({0, static_cast<int32_t>(tokens)})),
        q(rig.normal("q", {tokens, kHeads * kKey})),
        k(rig.normal("k", {tokens, kHeads * kKey})),
        v(rig.normal("v", {tokens, kHeads * kValue})),
        i(rig.normal("i", {tokens, kHeads}, gates)),
        f(rig.normal("f", {tokens, kHeads}, gates)),
        entering{rig.normal("c", {1, kHeads, kKey, kValue}), rig.normal("n", {1, kHeads, kKey}),
                 rig.normal("m", {1, kHeads})} {
    // The model's soft cap.
    for (const Tensor& gate : {i, f}) {
      for (int64_t e = 0; e < gate.elements(); ++e) {
        float& x = host<float>(gate)[e];
        x = 15.0f * std::tanh(x / 15.0f);
      }
    }
  }
  MlstmInputs inputs() const { return {q, k, v, i, f}; }
  Inputs doubles() const {
    return {numbers(q), numbers(k),           numbers(v),           numbers(i),
            numbers(f), numbers(entering[0]), numbers(entering[1]), numbers(entering[2])};
  }

  int64_t tokens;
  Sequence sequence;
  Tensor q, k, v, i, f;
  State entering;
  MlstmRecurrence recurrence{{kHeads, kKey, kValue, 1.0f / std::sqrt(static_cast<float>(kKey))}};
};

// Gates of ordinary size, and gates at both ends of the cap, where e^i spans thirteen decades and a
// token forgets all before it: the plain state must not lose what the stabilised one keeps.
TEST(MlstmRecurrence, AgreesWithTheStabilisedForm) {
  for (const double gates : {1.0, 5.0, 100.0}) {
    for (const int64_t tokens : {1, 37, 150}) {
      SCOPED_TRACE(fmt::format("gates {}, {} tokens", gates, tokens));
      Rig rig;
      const Problem p(rig, tokens, gates);
      State state = p.entering;
      SavedStack saved;
      const Tensor h = p.recurrence.forward(rig.exec, p.inputs(), p.sequence, &state, saved);
      const Outputs want = naive(p.doubles(), tokens);
      // Allows only rounding of terms that cancel, as token by token. Chunks weigh keys by
      // exponentials of differences of running sums of log decays, which reach 600 in a chunk of 64
      // at the cap: were those sums rounded, h would be off by 4e-4 of the largest.
      EXPECT_TRUE(Near(h, want.h, 6e-8 * (want.cancelled + 10)));
      EXPECT_TRUE(Near(state[0], want.c, 1e-5));
      EXPECT_TRUE(Near(state[1], want.n, 1e-5));
      EXPECT_TRUE(Near(state[2], want.m, 1e-6));
    }
  }
}

TEST(MlstmRecurrence, AgreesWithTheStabilisedFormTokenByToken) {
  for (const double gates : {1.0, 5.0, 100.0}) {
    constexpr int64_t kTokens = 150;
    Rig rig;
    const Problem p(rig, kTokens, gates);
    const Outputs want = naive(p.doubles(), kTokens);
    State state = p.entering;
    Numbers h;
    for (int64_t t = 0; t < kTokens; ++t) {
      SavedStack saved;
      const Tensor q = p.q.row_range(t, 1), k = p.k.row_range(t, 1), v = p.v.row_range(t, 1),
                   i = p.i.row_range(t, 1), f = p.f.row_range(t, 1);
      const Sequence one = make_sequence({0, 1});
      const Numbers row =
          numbers(p.recurrence.forward(rig.exec, {q, k, v, i, f}, one, &state, saved));
      h.insert(h.end(), row.begin(), row.end());
    }
    EXPECT_TRUE(Near(h, want.h, 6e-8 * (want.cancelled + 10))) << "gates " << gates;
  }
}

TEST(MlstmRecurrence, HasTheGradientsOfTheStabilisedForm) {
  for (const double gates : {1.0, 5.0}) {
    constexpr int64_t kTokens = 6;
    Rig rig;
    const Problem p(rig, kTokens, gates);
    State state = p.entering;
    SavedStack saved;
    p.recurrence.forward(rig.exec, p.inputs(), p.sequence, &state, saved);
    const Tensor dh = rig.normal("dh", {kTokens, kHeads * kValue});
    const State d_leaving{rig.normal("dc", {1, kHeads, kKey, kValue}),
                          rig.normal("dn", {1, kHeads, kKey}), rig.normal("dm", {1, kHeads})};
    State d = d_leaving;
    const Tensor dq = rig.exec.empty(p.q.shape()), dk = rig.exec.empty(p.k.shape()),
                 dv = rig.exec.empty(p.v.shape()), di = rig.exec.empty(p.i.shape()),
                 df = rig.exec.empty(p.f.shape());
    p.recurrence.backward(rig.exec, p.inputs(), p.sequence, dh, &d, {dq, dk, dv, di, df}, saved);

    const auto check = [&](Numbers Inputs::*which, const Tensor& got, const char* name) {
      const auto loss = [&](const Numbers& x) {
        Inputs in = p.doubles();
        in.*which = x;
        const Outputs out = naive(in, kTokens);
        return dot(out.h, numbers(dh)) + dot(out.c, numbers(d_leaving[0])) +
               dot(out.n, numbers(d_leaving[1])) + dot(out.m, numbers(d_leaving[2]));
      };
      // Differences of a loss with poles (q . n near the bound) are good to some 1e-5.
      EXPECT_TRUE(Near(numbers(got), slopes(loss, p.doubles().*which), 1e-4))
          << name << ", gates " << gates;
    };
    check(&Inputs::q, dq, "q");
    check(&Inputs::k, dk, "k");
    check(&Inputs::v, dv, "v");
    check(&Inputs::i, di, "i");
    check(&Inputs::f, df, "f");
    check(&Inputs::c, d[0], "C");
    check(&Inputs::n, d[1], "n");
    check(&Inputs::m, d[2], "m");
  }
}

TEST(MlstmRecurrence, PassesTheStateOfAnEmptyDocumentOn) {
  Rig rig;
  const Problem p(rig, 0, 1.0);
  State state = p.entering;
  SavedStack saved;
  p.recurrence.forward(rig.exec, p.inputs(), p.sequence, &state, saved);
  for (size_t part = 0; part < 3; ++part) EXPECT_TRUE(Near(state[part], p.entering[part], 1e-6));
  const Summary nothing = p.recurrence.summarize(rig.exec, p.inputs(), p.sequence);
  const State same = p.recurrence.apply(rig.exec, nothing, p.entering);
  for (size_t part = 0; part < 3; ++part) EXPECT_TRUE(Near(same[part], p.entering[part], 1e-6));
}

}  // namespace
}  // namespace weft::test
