#include "kernels/scan/norm_descent_scan.h"

#include <gtest/gtest.h>

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

constexpr size_t kHeads = 2, kWidth = 5, kState = kWidth * kWidth;
constexpr float kScale = 0.7f, kEpsilon = 0.01f;  // large: differences see a smooth norm

struct Case {
  std::vector<int32_t> documents, before;
  int64_t mini_batch;
};
// More than a segment of 16 pieces; a document without tokens; ones that begin inside of a
// mini-batch; a mini-batch of more than a piece of 64.
const Case kCases[] = {{{0, 19, 19, 21}, {0, 0, 0}, 1},
                       {{0, 67, 67, 70}, {3, 0, 2}, 4},
                       {{0, 70}, {5}, 100},
                       {{0, 70, 75}, {0, 60}, 66}};

// Inputs in one long vector: q, k, v, eta, w, c, M, n, anchor M, anchor n.
std::vector<size_t> offsets(const Case& c) {
  const size_t rows = static_cast<size_t>(c.documents.back()) * kHeads;
  const size_t heads = (c.documents.size() - 1) * kHeads;
  std::vector<size_t> at = {0};
  for (const size_t size :
       {rows * kWidth, rows * kWidth, rows * kWidth, rows, kHeads * kWidth, kHeads * kWidth,
        heads * kState, heads * kWidth, heads * kState, heads * kWidth}) {
    at.push_back(at.back() + size);
  }
  return at;
}

// The rule as it is written.
struct Naive {
  Numbers out, m, n, anchor_m, anchor_n;  // the last four as they leave

  Naive(const Case& c, const Numbers& x) {
    const auto at = offsets(c);
    const auto part = [&](size_t i) {
      return Numbers(x.begin() + static_cast<ptrdiff_t>(at[i]),
                     x.begin() + static_cast<ptrdiff_t>(at[i + 1]));
    };
    m = part(6), n = part(7), anchor_m = part(8), anchor_n = part(9);
    out.resize(at[1]);
    for (size_t d = 0; d + 1 < c.documents.size(); ++d) {
      for (size_t h = 0; h < kHeads; ++h) run(c, x, at, d, h);
    }
  }

  void run(const Case& c, const Numbers& x, const std::vector<size_t>& at, size_t d, size_t h) {
    double *M = &m[(d * kHeads + h) * kState], *N = &n[(d * kHeads + h) * kWidth],
           *A = &anchor_m[(d * kHeads + h) * kState], *B = &anchor_n[(d * kHeads + h) * kWidth];
    const double *w = &x[at[4] + h * kWidth], *b = &x[at[5] + h * kWidth];
    int64_t position = c.before[d];
    for (auto t = static_cast<size_t>(c.documents[d]); t < static_cast<size_t>(c.documents[d + 1]);
         ++t) {
      const auto take = [&] { std::copy_n(M, kState, A), std::copy_n(N, kWidth, B); };
      if (position % c.mini_batch == 0) take();
      const size_t row = t * kHeads + h;
      const double *q = &x[at[0] + row * kWidth], *k = &x[at[1] + row * kWidth],
                   *v = &x[at[2] + row * kWidth];
      const Numbers u = gradient(k, v, A, B, w, b);
      const double eta = x[at[3] + row];
      for (size_t j = 0; j < kWidth; ++j) {
        N[j] -= eta * u[j];
        double read = N[j];
        for (size_t i = 0; i < kWidth; ++i) {
          M[i * kWidth + j] -= eta * k[i] * u[j];
          read += double{kScale} * q[i] * M[i * kWidth + j];
        }
        out[row * kWidth + j] = read;
      }
      if (++position % c.mini_batch == 0) take();
    }
  }

  // Of the loss at z.
  static Numbers gradient(const double* k, const double* v, const double* A, const double* B,
                          const double* w, const double* b) {
    constexpr double d = kWidth;
    Numbers z(B, B + kWidth), e(kWidth);
    double mean = 0, var = 0, sum = 0, along = 0;
    for (size_t j = 0; j < kWidth; ++j) {
      for (size_t i = 0; i < kWidth; ++i) z[j] += k[i] * A[i * kWidth + j];
      mean += z[j] / d;
    }
    for (const double x : z) var += (x - mean) * (x - mean) / d;
    const double inv = 1 / std::sqrt(var + double{kEpsilon});
    for (size_t j = 0; j < kWidth; ++j) {
      z[j] = (z[j] - mean) * inv;
      e[j] = (w[j] * z[j] + b[j] - (v[j] - k[j])) * w[j];
      sum += e[j], along += e[j] * z[j];
    }
    for (size_t j = 0; j < kWidth; ++j) e[j] = (e[j] - sum / d - z[j] * along / d) * inv;
    return e;
  }
};

enum class Keep { kNo, kYes };

// Inputs and cotangents of a case, and what the kernels make of them.
struct Scanned {
  Scanned(Rig& rig, const Case& c, Keep keep) {
    const auto heads = static_cast<int64_t>(kHeads), width = static_cast<int64_t>(kWidth);
    const int64_t tokens = c.documents.back(), n = static_cast<int64_t>(c.documents.size()) - 1;
    const Shape rows{tokens, heads * width}, m{n, heads, width, width}, b{n, heads, width};
    in = {rig.normal("q", rows, 0.5),
          rig.normal("k", rows, 0.4),
          rig.normal("v", rows),
          rig.normal("eta", {tokens, heads}, 0.2),
          rig.normal("w", {heads, width}),
          rig.normal("c", {heads, width}, 0.3),
          rig.normal("m", m),
          rig.normal("n", b),
          rig.normal("am", m),
          rig.normal("an", b)};
    for (const Tensor& t : in) d.push_back(rig.exec.zeros(t.shape()));
    for (size_t i = 6; i < 10; ++i) {
      left.push_back(rig.exec.empty(in[i].shape()));
      d_left.push_back(rig.normal("d" + std::to_string(i), in[i].shape()));
    }
    out = rig.exec.empty(rows), d_out = rig.normal("d_out", rows);
    const kernels::NormDescentScan scan{.q = in[0],
                                        .k = in[1],
                                        .v = in[2],
                                        .eta = in[3],
                                        .w = in[4],
                                        .c = in[5],
                                        .documents = c.documents,
                                        .before = c.before,
                                        .heads = heads,
                                        .width = width,
                                        .mini_batch = c.mini_batch,
                                        .scale = kScale,
                                        .epsilon = kEpsilon};
    Tensor kept;
    if (keep == Keep::kYes) {
      kept = rig.exec.empty({kernels::norm_descent_scan_kept(rig.exec, scan)});
    }
    const kernels::NormDescentStates entering{in[6], in[7], in[8], in[9]};
    kernels::norm_descent_scan_forward(rig.exec, scan, entering, out,
                                       {left[0], left[1], left[2], left[3]},
                                       kept.defined() ? kept.view() : View{});
    kernels::norm_descent_scan_backward(
        rig.exec, scan, entering, d_out, {d_left[0], d_left[1], d_left[2], d_left[3]},
        {d[0], d[1], d[2], d[3], d[4], d[5], {d[6], d[7], d[8], d[9]}},
        kept.defined() ? ConstView(kept) : ConstView{});
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
    return dot(naive.out, numbers(d_out)) + dot(naive.m, numbers(d_left[0])) +
           dot(naive.n, numbers(d_left[1])) + dot(naive.anchor_m, numbers(d_left[2])) +
           dot(naive.anchor_n, numbers(d_left[3]));
  }

  std::vector<Tensor> in, d, left, d_left;
  Tensor out, d_out;
};

TEST(NormDescentScan, AgreesWithItsRuleAndItsSlopes) {
  for (const Case& c : kCases) {
    Numbers slope;
    for (const Isa isa : available_isas()) {
      Rig rig(2, isa);
      const Scanned run(rig, c, Keep::kNo);
      const Numbers x = run.inputs();
      const Naive want(c, x);
      const double bound = tolerance(DType::kF32, 70 * int64_t{kState});
      EXPECT_TRUE(Near(run.out, want.out, bound));
      EXPECT_TRUE(Near(run.left[0], want.m, bound));
      EXPECT_TRUE(Near(run.left[1], want.n, bound));
      EXPECT_TRUE(Near(run.left[2], want.anchor_m, bound));
      EXPECT_TRUE(Near(run.left[3], want.anchor_n, bound));
      if (slope.empty()) slope = slopes([&](const Numbers& at) { return run.loss(c, at); }, x);
      const auto at = offsets(c);
      for (size_t i = 0; i < run.in.size(); ++i) {
        const Numbers own(slope.begin() + static_cast<ptrdiff_t>(at[i]),
                          slope.begin() + static_cast<ptrdiff_t>(at[i + 1]));
        // Gradients pass through the norms of all later mini-batches and back.
        EXPECT_TRUE(Near(run.d[i], own, 10 * bound)) << i << ", mini-batch " << c.mini_batch;
      }
    }
  }
}

TEST(NormDescentScan, KeptStatesChangeNoBit) {
  for (const Case& c : kCases) {
    Rig rig;
    const Scanned again(rig, c, Keep::kNo), kept(rig, c, Keep::kYes);
    for (size_t i = 0; i < again.d.size(); ++i) EXPECT_TRUE(SameBits(again.d[i], kept.d[i])) << i;
  }
}

}  // namespace
}  // namespace weft::test
