#include "kernels/scan/momentum_scan.h"

#include <gtest/gtest.h>

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

constexpr int64_t kHeads = 2, kKey = 3, kValue = 5, kState = kKey * kValue;

struct Case {
  std::vector<int32_t> documents, before;
  int64_t mini_batch;
  bool momentum;
};
// More than a chunk of 64; a document without tokens; one that begins inside of a mini-batch.
const Case kCases[] = {{{0, 67, 67, 70}, {0, 0, 0}, 1, true},
                       {{0, 67, 67, 70}, {3, 0, 2}, 4, true},
                       {{0, 70}, {5}, 100, true},
                       {{0, 67, 70}, {1, 0}, 3, false}};

struct Sizes {
  explicit Sizes(const Case& c)
      : tokens(static_cast<size_t>(c.documents.back())),
        states((c.documents.size() - 1) * kHeads * kState) {}
  size_t tokens, states;
  // Where inputs lie in one long vector: q, k, v, theta, alpha, eta, M, S, anchor.
  std::vector<size_t> offsets() const {
    const size_t gate = tokens * kHeads;
    std::vector<size_t> at = {0};
    for (const size_t size :
         {gate * kKey, gate * kKey, gate * kValue, gate, gate, gate, states, states, states}) {
      at.push_back(at.back() + size);
    }
    return at;
  }
};

// The rule as it is written, for one head of one document: out and the states that leave.
struct Naive {
  const Case& c;
  const Numbers& x;
  Numbers out, left;  // left: M, S, anchor

  Naive(const Case& c, const Numbers& x) : c(c), x(x) {
    const Sizes sizes(c);
    out.resize(sizes.tokens * kHeads * kValue);
    left.resize(3 * sizes.states);
    for (size_t d = 0; d + 1 < c.documents.size(); ++d) {
      for (size_t h = 0; h < kHeads; ++h) run(sizes, d, h);
    }
  }
  void run(const Sizes& sizes, size_t d, size_t h) {
    const auto at = sizes.offsets();
    const size_t state = (d * kHeads + h) * kState;
    const auto begin = [&](size_t part) {
      return x.begin() + static_cast<ptrdiff_t>(at[part] + state);
    };
    Numbers m(begin(6), begin(6) + kState), s(begin(7), begin(7) + kState),
        a(begin(8), begin(8) + kState);
    int64_t position = c.before[d];
    for (auto t = static_cast<size_t>(c.documents[d]); t < static_cast<size_t>(c.documents[d + 1]);
         ++t, ++position) {
      if (position % c.mini_batch == 0) a = m;
      const size_t row = t * kHeads + h;
      const double *q = &x[at[0] + row * kKey], *k = &x[at[1] + row * kKey],
                   *v = &x[at[2] + row * kValue];
      const double theta = x[at[3] + row], alpha = c.momentum ? x[at[4] + row] : 0,
                   eta = c.momentum ? x[at[5] + row] : 0;
      for (size_t j = 0; j < kValue; ++j) {
        double error = -v[j], read = 0;
        for (size_t i = 0; i < kKey; ++i) error += k[i] * a[i * kValue + j];
        for (size_t i = 0; i < kKey; ++i) {
          const size_t e = i * kValue + j;
          s[e] = eta * s[e] - theta * k[i] * error;
          m[e] = (1 - alpha) * m[e] + s[e];
          read += q[i] * m[e];
        }
        out[row * kValue + j] = 0.7 * read;
      }
      if ((position + 1) % c.mini_batch == 0) a = m;
    }
    for (size_t e = 0; e < kState; ++e) {
      left[state + e] = m[e];
      left[sizes.states + state + e] = s[e];
      left[2 * sizes.states + state + e] = a[e];
    }
  }
};

Numbers part_of(const Numbers& all, size_t begin, size_t end) {
  return {all.begin() + static_cast<ptrdiff_t>(begin), all.begin() + static_cast<ptrdiff_t>(end)};
}

// Inputs and cotangents of a case, and what the kernels make of them.
struct Scanned {
  Scanned(Rig& rig, const Case& c) : n(c.documents.back()) {
    const Shape state{static_cast<int64_t>(c.documents.size()) - 1, kHeads, kKey, kValue};
    in = {rig.normal("q", {n, kHeads * kKey}, 0.5),
          rig.normal("k", {n, kHeads * kKey}, 0.5),
          rig.normal("v", {n, kHeads * kValue}),
          rig.normal("theta", {n, kHeads}, 0.3),
          rig.normal("alpha", {n, kHeads}, 0.2),
          rig.normal("eta", {n, kHeads}, 0.4),
          rig.normal("m", state),
          rig.normal("s", state),
          rig.normal("a", state)};
    for (const Tensor& t : in) gradient.push_back(rig.exec.zeros(t.shape()));
    for (const char* name : {"d_m", "d_s", "d_a"}) {
      left.push_back(rig.exec.empty(state));
      d_left.push_back(rig.normal(name, state));
    }
    out = rig.exec.empty({n, kHeads * kValue});
    d_out = rig.normal("d_out", out.shape());
    kernels::MomentumScan scan{.q = in[0],
                               .k = in[1],
                               .v = in[2],
                               .theta = in[3],
                               .alpha = {},
                               .eta = {},
                               .documents = c.documents,
                               .before = c.before,
                               .heads = kHeads,
                               .key = kKey,
                               .value = kValue,
                               .mini_batch = c.mini_batch,
                               .scale = 0.7f};
    kernels::MomentumScanGradients d{.dq = gradient[0],
                                     .dk = gradient[1],
                                     .dv = gradient[2],
                                     .d_theta = gradient[3],
                                     .d_alpha = {},
                                     .d_eta = {},
                                     .entering = {gradient[6], gradient[7], gradient[8]}};
    if (c.momentum) {
      scan.alpha = in[4], scan.eta = in[5];
      d.d_alpha = gradient[4], d.d_eta = gradient[5];
    }
    kernels::momentum_scan_forward(rig.exec, scan, {in[6], in[7], in[8]}, out,
                                   {left[0], left[1], left[2]});
    kernels::momentum_scan_backward(rig.exec, scan, {in[6], in[7], in[8]}, d_out,
                                    {d_left[0], d_left[1], d_left[2]}, d);
  }
  Numbers inputs() const {
    Numbers x;
    for (const Tensor& t : in) {
      const Numbers part = numbers(t);
      x.insert(x.end(), part.begin(), part.end());
    }
    return x;
  }
  double loss(const Case& c, const Numbers& x) const {
    const Naive naive(c, x);
    const size_t states = naive.left.size() / 3;
    double total = dot(naive.out, numbers(d_out));
    for (size_t i = 0; i < 3; ++i) {
      total += dot(part_of(naive.left, i * states, (i + 1) * states), numbers(d_left[i]));
    }
    return total;
  }

  int64_t n;
  std::vector<Tensor> in, gradient, left, d_left;
  Tensor out, d_out;
};

TEST(MomentumScan, AgreesWithItsRuleAndItsSlopes) {
  for (const Case& c : kCases) {
    const Sizes sizes(c);
    Numbers slope;
    for (const Isa isa : available_isas()) {
      Rig rig(2, isa);
      const Scanned run(rig, c);
      const Numbers x = run.inputs();
      const Naive want(c, x);
      const double bound = tolerance(DType::kF32, 70 * kState);
      EXPECT_TRUE(Near(run.out, want.out, bound));
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(
            Near(run.left[i], part_of(want.left, i * sizes.states, (i + 1) * sizes.states), bound))
            << i;
      }
      if (slope.empty()) slope = slopes([&](const Numbers& at) { return run.loss(c, at); }, x);
      const auto at = sizes.offsets();
      for (size_t i = 0; i < run.in.size(); ++i) {
        if (!c.momentum && (i == 4 || i == 5)) continue;
        // Gradients pass through the states of all later tokens and back.
        EXPECT_TRUE(Near(run.gradient[i], part_of(slope, at[i], at[i + 1]), 10 * bound)) << i;
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
