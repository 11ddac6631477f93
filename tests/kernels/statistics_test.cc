#include "kernels/routing/statistics.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/host_access.h"
#include "kernels/routing/shared_choices.h"
#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

Tensor integers(Rig& rig, Shape shape, const std::vector<int64_t>& values) {
  const Tensor out = rig.exec.empty(shape, DType::kI64);
  std::copy(values.begin(), values.end(), host<int64_t>(out));
  return out;
}
Tensor indices(Rig& rig, Shape shape, const std::vector<int32_t>& values) {
  const Tensor out = rig.exec.empty(shape, DType::kI32);
  std::copy(values.begin(), values.end(), host<int32_t>(out));
  return out;
}

TEST(ExpertFractions, AreSharesOfEachRunOrTheLoad) {
  Rig rig;
  const Tensor count = integers(rig, {3, 2}, {3, 1, 0, 0, 0, 5});
  const Tensor f = rig.exec.empty({3, 2}), load = rig.exec.zeros({2});
  kernels::expert_fractions(rig.exec, count, {}, f);
  const Numbers shares = {0.75, 0.25, 0, 0, 0, 1};
  EXPECT_EQ(numbers(f), shares);
  kernels::expert_fractions(rig.exec, count, load, f);
  EXPECT_EQ(numbers(f), shares) << "a load of zeros is none yet";
  host<float>(load)[1] = 1.0f;
  kernels::expert_fractions(rig.exec, count, load, f);
  EXPECT_EQ(numbers(f), (Numbers{0, 1, 0, 1, 0, 1}));
}

TEST(RouterStatistics, AreSumsOverTheTokensHere) {
  Rig rig;
  // Five tokens, of which the first two end run 0 of three tokens; the others are run 1.
  const int64_t tokens = 5, experts = 3;
  const Tensor p = rig.normal("p", {tokens, experts}), f = rig.normal("f", {2, experts});
  const Tensor lse = rig.normal("lse", {tokens}), entropy = rig.normal("h", {tokens}),
               margin = rig.normal("m", {tokens}), out = rig.exec.empty({4}, DType::kF64);
  kernels::RouterStatistics in{p, f, lse, entropy, margin, 1, 3, 10};
  kernels::router_statistics(rig.exec, in, out);
  const Numbers ps = numbers(p), fs = numbers(f), l = numbers(lse), h = numbers(entropy),
                m = numbers(margin);
  double balance = 0, z = 0, nats = 0, least = m[0];
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t e = 0; e < experts; ++e) {
      balance += 3 * fs[(1 + t) / 3 * experts + e] * ps[t * experts + e] / 10;
    }
    z += l[t] * l[t] / 10, nats += h[t] / 10, least = std::min(least, m[t]);
  }
  EXPECT_NEAR(host<double>(out)[0], balance, 1e-6);
  EXPECT_NEAR(host<double>(out)[1], z, 1e-12);
  EXPECT_NEAR(host<double>(out)[2], nats, 1e-12);
  EXPECT_EQ(host<double>(out)[3], least);

  const Tensor none = rig.exec.empty({0, experts}), empty = rig.exec.empty({0});
  kernels::router_statistics(rig.exec, {none, f, empty, empty, empty, 0, 0, 10}, out);
  EXPECT_EQ(host<double>(out)[0], 0.0);
  EXPECT_EQ(host<double>(out)[3], std::numeric_limits<double>::infinity());
  in.run = 2;
  EXPECT_THROW(kernels::router_statistics(rig.exec, in, out), Error) << "runs end before tokens";
}

TEST(ForcedChoices, GoRoundTheExperts) {
  Rig rig;
  const Tensor index = rig.exec.empty({3, 2}, DType::kI32);
  kernels::forced_choices(rig.exec, 4, index);
  EXPECT_EQ(download<int32_t>(rig.exec, index), (std::vector<int32_t>{0, 1, 2, 3, 0, 1}));
}

TEST(ExpertLoad, MovesBiasesTowardsTheMeanAndKeepsShares) {
  Rig rig;
  const Tensor bias = rig.exec.zeros({4}), load = rig.exec.zeros({4});
  kernels::ExpertLoad in{HostTable<int64_t>({10, 0, 25, 5}), 0.25, bias, load};
  kernels::update_expert_load(rig.exec, in);
  EXPECT_EQ(numbers(bias), (Numbers{0, 0.25, -0.25, 0.25}));
  EXPECT_EQ(numbers(load), (Numbers{0.25, 0, 0.625, 0.125}));
  in.counts = HostTable<int64_t>({0, 0, 0, 0});
  kernels::update_expert_load(rig.exec, in);
  EXPECT_EQ(numbers(load), (Numbers{0.25, 0, 0.625, 0.125})) << "a step without tokens";
}

// Two ranks with three and one tokens of sequences of two: rank 0 has tokens 0, 1 and 2, rank 1
// token 1 of the same first sequence.
TEST(SharedChoices, ComeBackInTheOrderOfTheMicroBatch) {
  Rig rig;
  const int64_t active = 2, words = kernels::choice_words(active);
  const Tensor index = indices(rig, {3, active}, {0, 1, 2, 3, 4, 5});
  const Tensor other = indices(rig, {1, active}, {6, 7});
  const Tensor weight = rig.normal("w", {3, active}), other_weight = rig.normal("o", {1, active});
  const Tensor all = rig.exec.empty({6, words}, DType::kI32);
  kernels::pack_choices(rig.exec, index, weight, {.first = 0, .length = 2}, all.row_range(0, 3));
  kernels::pack_choices(rig.exec, other, other_weight, {.first = 1, .length = 2},
                        all.row_range(3, 3));
  const Tensor out = rig.exec.empty({4, active}, DType::kI32),
               weights = rig.exec.empty({4, active}), place = rig.exec.empty({4}, DType::kI32);
  kernels::unpack_choices(rig.exec, all, out, weights, place);
  EXPECT_EQ(download<int32_t>(rig.exec, place), (std::vector<int32_t>{0, 1, 3, 2}));
  EXPECT_EQ(download<int32_t>(rig.exec, out), (std::vector<int32_t>{0, 1, 2, 3, 6, 7, 4, 5}));
  EXPECT_EQ(numbers(weights)[4], numbers(other_weight)[0]);

  const Tensor row = indices(rig, {4, active}, {0, -1, 1, 2, -1, 3, 4, -1});
  const Tensor kept = rig.exec.empty({3, active}, DType::kI32);
  kernels::keep_choices(rig.exec, row, place, 0, index, kept);
  EXPECT_EQ(download<int32_t>(rig.exec, kept), (std::vector<int32_t>{0, -1, 2, 3, 4, -1}));
  const Tensor kept_there = rig.exec.empty({1, active}, DType::kI32);
  kernels::keep_choices(rig.exec, row, place, 3, other, kept_there);
  EXPECT_EQ(download<int32_t>(rig.exec, kept_there), (std::vector<int32_t>{-1, 7}));
  EXPECT_THROW(kernels::unpack_choices(rig.exec, all, index, weight, indices(rig, {3}, {0, 0, 0})),
               Error)
      << "four tokens into three rows";
}

}  // namespace
}  // namespace weft::test
