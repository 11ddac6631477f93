#include "kernels/rows/rebased.h"

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

constexpr int64_t kHeads = 2;
constexpr double kEpsilon = 1e-5;

// LayerNorm of every head, in double.
Numbers normed(const Numbers& x, const Numbers& gamma, const Numbers& beta) {
  const size_t f = gamma.size();
  Numbers out(x.size());
  for (size_t at = 0; at < x.size(); at += f) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < f; ++i) mean += x[at + i] / static_cast<double>(f);
    for (size_t i = 0; i < f; ++i)
      variance += (x[at + i] - mean) * (x[at + i] - mean) / static_cast<double>(f);
    for (size_t i = 0; i < f; ++i) {
      out[at + i] = (x[at + i] - mean) / std::sqrt(variance + kEpsilon) * gamma[i] + beta[i];
    }
  }
  return out;
}

Numbers features(const Numbers& x, const Numbers& gamma, const Numbers& beta) {
  const size_t f = gamma.size();
  const Numbers n = normed(x, gamma, beta);
  const double square = 1 / std::sqrt(static_cast<double>(f)), cross = std::sqrt(2.0) * square;
  Numbers out;
  for (size_t at = 0; at < x.size(); at += f) {
    for (size_t a = 0; a < f; ++a) out.push_back(n[at + a] * n[at + a] * square);
    for (size_t a = 0; a < f; ++a) {
      for (size_t b = a + 1; b < f; ++b) out.push_back(n[at + a] * n[at + b] * cross);
    }
  }
  return out;
}

// Widths of one, around the vectors of every instruction set, and the published one.
class Rebased : public testing::TestWithParam<std::tuple<DType, int64_t>> {};

TEST_P(Rebased, MakesFeaturesAndTheirGradients) {
  const auto [type, f] = GetParam();
  constexpr int64_t kRows = 5;
  for (const Isa isa : available_isas()) {
    Rig rig(2, isa);
    const int64_t width = kernels::rebased_width(f);
    const Padded x(rig, "x", kRows, kHeads * f, type), dx(rig, "dx", kRows, kHeads * f, type),
        phi(rig, "phi", kRows, kHeads * width, DType::kF32);
    const Tensor gamma = rig.normal("gamma", {f}), beta = rig.normal("beta", {f}),
                 d_phi = rig.normal("d_phi", {kRows, kHeads * width}),
                 d_gamma = rig.exec.zeros({f}), d_beta = rig.exec.zeros({f});
    const kernels::RebasedFeatures map{kHeads};
    kernels::rebased_features_forward(rig.exec, map, x, gamma, beta, phi);
    const Numbers nx = x.numbers(), ng = numbers(gamma), nb = numbers(beta), nd = numbers(d_phi);
    EXPECT_TRUE(Near(phi.numbers(), features(nx, ng, nb), tolerance(DType::kF32, 4 * f)));
    EXPECT_TRUE(phi.surroundings_kept());
    kernels::rebased_features_backward(rig.exec, map, {x, gamma, beta, d_phi, dx, d_gamma, d_beta});
    // Normalized heads of one or two channels are signs: almost all of their gradient cancels, so
    // that errors are measured by its terms, which are those of beta's.
    const double f32 = tolerance(DType::kF32, 16 * f * kRows);
    Numbers got = dx.numbers(),
            want = slopes([&](const Numbers&n) { return dot(features(n, ng, nb), nd); }, nx);
    const Numbers terms = numbers(d_beta);
    got.insert(got.end(), terms.begin(), terms.end());
    want.insert(want.end(), terms.begin(), terms.end());
    EXPECT_TRUE(Near(got, want, tolerance(type, 16 * f)));
    EXPECT_TRUE(Near(
        d_gamma, slopes([&](const Numbers& n) { return dot(features(nx, n, nb), nd); }, ng), f32));
    EXPECT_TRUE(Near(
        d_beta, slopes([&](const Numbers& n) { return dot(features(nx, ng, n), nd); }, nb), f32));
    EXPECT_TRUE(dx.surroundings_kept());
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, Rebased,
                         testing::Combine(testing::ValuesIn(kReals),
                                          testing::Values(1, 2, 4, 9, 16, 17, 33)));

TEST(RebasedFeatures, HaveProductsThatAreSquaredScores) {
  constexpr int64_t kWidth = 16;
  Rig rig;
  const Tensor q = rig.normal("q", {1, kWidth}), k = rig.normal("k", {1, kWidth}),
               gamma = rig.normal("gamma", {kWidth}), beta = rig.normal("beta", {kWidth}),
               fq = rig.exec.empty({1, kernels::rebased_width(kWidth)}),
               fk = rig.exec.empty(fq.shape());
  kernels::rebased_features_forward(rig.exec, {1}, q, gamma, beta, fq);
  kernels::rebased_features_forward(rig.exec, {1}, k, gamma, beta, fk);
  const double score = dot(normed(numbers(q), numbers(gamma), numbers(beta)),
                           normed(numbers(k), numbers(gamma), numbers(beta)));
  const double want = score * score / kWidth;
  EXPECT_NEAR(dot(numbers(fq), numbers(fk)), want, 1e-5 * want + 1e-5);
}

}  // namespace
}  // namespace weft::test
