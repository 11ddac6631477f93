#include "kernels/routing/router.h"
#include "core/host_access.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

using kernels::Router;
using kernels::RouterMode;

constexpr Router kRouters[] = {
    {RouterMode::kSoftmax, false, 1},       {RouterMode::kSoftmax, false, 3},
    {RouterMode::kSoftmax, true, 3},        {RouterMode::kTopkSoftmax, false, 3},
    {RouterMode::kSoftmax, true, 1},        {RouterMode::kTopkSoftmax, false, 5},
    {RouterMode::kSigmoid, false, 3, 1.5f}, {RouterMode::kSigmoid, true, 3, 2.5f},
    {RouterMode::kSigmoid, true, 1},        {RouterMode::kSigmoid, false, 5}};

struct NaiveRow {
  Numbers probabilities, weight, log_sum_exp;
  std::vector<int> index;
};

std::vector<int> best(const Numbers& score, int64_t count) {
  std::vector<int> order(score.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return score[a] > score[b]; });
  order.resize(static_cast<size_t>(count));
  return order;
}

// The best of the groups whose two best scores have the largest sum.
std::vector<int> best_in_groups(const Router& router, Numbers score) {
  const size_t size = score.size() / static_cast<size_t>(router.groups);
  Numbers sums;
  for (size_t begin = 0; begin < score.size(); begin += size) {
    Numbers group(score.begin() + begin, score.begin() + begin + size);
    std::sort(group.rbegin(), group.rend());
    sums.push_back(size == 1 ? group[0] : group[0] + group[1]);
  }
  std::vector<bool> open(sums.size());
  for (const int g : best(sums, router.kept_groups)) open[static_cast<size_t>(g)] = true;
  for (size_t e = 0; e < score.size(); ++e) {
    if (!open[e / size]) score[e] = -std::numeric_limits<double>::infinity();
  }
  return best(score, router.active);
}

// One token. `chosen` fixes the choice (for differences); empty: the best, ties to the lower index.
NaiveRow naive_row(const Router& router, const Numbers& logits, std::vector<int> chosen = {},
                   const Numbers& bias = {}) {
  const bool sigmoid = router.mode == RouterMode::kSigmoid;
  const double most = *std::max_element(logits.begin(), logits.end());
  double total = 0, exponentials = 0;
  Numbers score, selection;
  for (const double l : logits) {
    exponentials += std::exp(l - most);
    score.push_back(sigmoid ? 1 / (1 + std::exp(-l)) : std::exp(l - most));
    total += score.back();
  }
  NaiveRow out{{}, {}, {most + std::log(exponentials)}, {}};
  for (size_t e = 0; e < score.size(); ++e) {
    out.probabilities.push_back(score[e] / total);
    selection.push_back(sigmoid ? score[e] + (bias.empty() ? 0 : bias[e])
                        : router.mode == RouterMode::kTopkSoftmax ? logits[e]
                                                                  : out.probabilities[e]);
  }
  if (chosen.empty()) chosen = best_in_groups(router, selection);
  const Numbers& weighed = sigmoid ? score : out.probabilities;
  double of_chosen = 0;
  for (const int e : chosen) of_chosen += weighed[e];
  const bool share = router.mode == RouterMode::kTopkSoftmax || router.renormalize;
  for (const int e : chosen) {
    out.weight.push_back(router.scale * weighed[e] / (share ? of_chosen : 1.0));
  }
  out.index = chosen;
  return out;
}

struct Outputs {
  Outputs(Rig& rig, const Router& router, const Tensor& logits)
      : probabilities(rig.exec.empty(logits.shape())),
        index(rig.exec.empty({logits.shape()[0], router.active}, DType::kI32)),
        weight(rig.exec.empty({logits.shape()[0], router.active})),
        log_sum_exp(rig.exec.empty({logits.shape()[0]})) {
    const Tensor first_bad = rig.exec.empty({1}, DType::kI64);
    kernels::Routed out = views();
    out.bad_token = first_bad;
    kernels::route_forward(rig.exec, router, {.logits = logits}, out);
    bad = *host<int64_t>(first_bad);
  }
  kernels::Routed views() const { return {probabilities, index, weight, log_sum_exp}; }
  Tensor probabilities, index, weight, log_sum_exp;
  int64_t bad;
};

void append(Numbers& to, const Numbers& from) { to.insert(to.end(), from.begin(), from.end()); }

class RouterTest : public testing::TestWithParam<Isa> {};

TEST_P(RouterTest, ChoosesAndWeighs) {
  Rig rig(2, GetParam());
  for (const Router& router : kRouters) {
    for (const int64_t experts : {5, 64, 67}) {
      const Tensor logits = rig.normal("l", {301, experts}, 2.0);
      const Outputs got(rig, router, logits);
      Numbers p, w, lse, index;
      for (int64_t r = 0; r < 301; ++r) {
        const NaiveRow row = naive_row(router, numbers(logits.row(r)));
        append(p, row.probabilities), append(w, row.weight), append(lse, row.log_sum_exp);
        append(index, Numbers(row.index.begin(), row.index.end()));
      }
      EXPECT_EQ(got.bad, -1);
      EXPECT_EQ(numbers(got.index), index);
      EXPECT_TRUE(Near(got.probabilities, p, tolerance(DType::kF32, experts)));
      EXPECT_TRUE(Near(got.weight, w, tolerance(DType::kF32, experts)));
      EXPECT_TRUE(Near(got.log_sum_exp, lse, tolerance(DType::kF32, experts)));
    }
  }
}

TEST_P(RouterTest, GivesTiesToTheLowerIndex) {
  Rig rig(1, GetParam());
  const Tensor logits = rig.exec.empty({2, 6});
  const float values[] = {1, 3, 2, 3, 2, 3, 0, 0, 0, 0, 0, 0};
  std::copy(values, values + 12, host<float>(logits));
  const Outputs got(rig, {.active = 4}, logits);
  EXPECT_EQ(numbers(got.index), (Numbers{1, 3, 5, 2, 0, 1, 2, 3}));
}

Numbers margins(Rig& rig, const Router& router, const kernels::RouterInput& in) {
  const int64_t rows = in.logits.rows();
  const Tensor p = rig.exec.empty({rows, in.logits.width()}), lse = rig.exec.empty({rows}),
               index = rig.exec.zeros({rows, router.active}, DType::kI32),
               weight = rig.exec.empty({rows, router.active}), margin = rig.exec.empty({rows});
  kernels::Routed out{p, index, weight, lse};
  out.margin = margin;
  kernels::route_forward(rig.exec, router, in, out);
  return numbers(margin);
}

TEST_P(RouterTest, TellsByHowMuchItChose) {
  Rig rig(2, GetParam());
  for (const Router& router : kRouters) {
    for (const int64_t experts : {5, 67}) {
      const Tensor logits = rig.normal("l", {301, experts}), bias = rig.normal("b", {experts});
      const bool sigmoid = router.mode == RouterMode::kSigmoid;
      Numbers want;
      for (int64_t r = 0; r < 301; ++r) {
        Numbers score = numbers(logits.row(r)), added = numbers(bias);
        for (size_t e = 0; sigmoid && e < score.size(); ++e) {
          score[e] = 1 / (1 + std::exp(-score[e])) + added[e];
        }
        std::sort(score.rbegin(), score.rend());
        const auto k = static_cast<size_t>(router.active);
        want.push_back(k == score.size() ? std::numeric_limits<double>::infinity()
                                         : score[k - 1] - score[k]);
      }
      kernels::RouterInput in{.logits = logits};
      if (sigmoid) in.bias = bias;
      const Numbers got = margins(rig, router, in);
      for (size_t r = 0; r < got.size(); ++r) {
        if (got[r] == want[r]) continue;          // both infinite
        ASSERT_NEAR(got[r], want[r], 1e-6) << r;  // two roundings of scores up to 4
      }
      in.choice = kernels::Choice::kGiven;
      for (const double m : margins(rig, router, in)) {
        ASSERT_EQ(m, std::numeric_limits<double>::infinity());
      }
    }
  }
}

// Two groups of three, one kept, of which two are chosen. Of logits:
TEST_P(RouterTest, AGroupCanBeChosenMoreNarrowlyThanItsExperts) {
  Rig rig(1, GetParam());
  const Tensor logits = rig.exec.empty({2, 6});
  const float values[] = {4, 3, 1,    4, 2.75f, 2,    // groups 7 and 6.75, experts 3 and 1
                          4, 3, 2.5f, 9, 0,     -1};  // groups 7 and 9, experts 0 and -1
  std::copy(values, values + 12, host<float>(logits));
  const Router router{RouterMode::kTopkSoftmax, false, 2, 1.0f, 2, 1};
  EXPECT_EQ(margins(rig, router, {.logits = logits}), (Numbers{0.25, 1}));
}

TEST_P(RouterTest, NamesTheFirstTokenWithALogitThatIsNotFinite) {
  Rig rig(3, GetParam());
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), kInf, -kInf}) {
    const Tensor logits = rig.normal("l", {701, 67});
    for (const int64_t token : {699, 333, 334}) host<float>(logits)[token * 67 + 66] = bad;
    const Outputs got(rig, {.active = 3}, logits);
    EXPECT_EQ(got.bad, 333);
    for (const double e : numbers(got.index)) ASSERT_TRUE(e >= 0 && e < 67);
  }
}

TEST_P(RouterTest, BackwardIsTheSlopeOfWeightsAndLosses) {
  Rig rig(2, GetParam());
  for (const Router& router : kRouters) {
    for (const bool losses : {false, true}) {
      const int64_t rows = 7, experts = 11;
      const Tensor logits = rig.normal("l", {rows, experts}), fraction = rig.normal("f", {experts});
      const Tensor d_weight = rig.normal("dw", {rows, router.active});
      const Tensor d_logits = rig.exec.empty({rows, experts});
      const Outputs got(rig, router, logits);
      const double aux = losses ? 0.3 : 0.0, z = losses ? 0.2 : 0.0;
      kernels::route_backward(rig.exec, router, logits, got.views(),
                              {.d_weight = d_weight,
                               .fraction = losses ? ConstView(fraction) : ConstView{},
                               .aux_scale = static_cast<float>(aux),
                               .z_scale = static_cast<float>(z)},
                              d_logits);
      Numbers want;
      for (int64_t r = 0; r < rows; ++r) {
        const Numbers row = numbers(logits.row(r)), d = numbers(d_weight.row(r));
        const std::vector<int> chosen = naive_row(router, row).index;
        append(want, slopes(
                         [&](const Numbers& l) {
                           const NaiveRow v = naive_row(router, l, chosen);
                           return dot(v.weight, d) + aux * dot(v.probabilities, numbers(fraction)) +
                                  z / 2 * v.log_sum_exp[0] * v.log_sum_exp[0];
                         },
                         row));
      }
      // Renormalized over a single expert the weight is 1 and its slope 0: what is left is rounding
      // of terms of size 1.
      const double unit = *std::max_element(want.begin(), want.end());
      EXPECT_TRUE(Near(d_logits, want, tolerance(DType::kF32, experts) + (unit < 1e-6 ? 1e-6 : 0)));
    }
  }
}

TEST_P(RouterTest, EveryRunOfTokensHasItsOwnFractions) {
  Rig rig(2, GetParam());
  for (const Router& router : {Router{.active = 2}, Router{RouterMode::kSigmoid, true, 2}}) {
    const int64_t runs = 3, run = 5, experts = 11;
    const Tensor logits = rig.normal("l", {runs * run, experts});
    const Tensor fraction = rig.normal("f", {runs, experts});
    const Tensor zero = rig.exec.zeros({runs * run, 2}), d = rig.exec.empty(logits.shape());
    const Outputs got(rig, router, logits);
    kernels::route_backward(rig.exec, router, logits, got.views(),
                            {.d_weight = zero, .fraction = fraction, .aux_scale = 1.0f}, d);
    for (int64_t r = 0; r < runs; ++r) {
      const Tensor part = logits.row_range(r * run, run), d_part = rig.exec.empty(part.shape());
      const Outputs alone(rig, router, part);
      kernels::route_backward(
          rig.exec, router, part, alone.views(),
          {.d_weight = zero.row_range(0, run), .fraction = fraction.row(r), .aux_scale = 1.0f},
          d_part);
      EXPECT_TRUE(SameBits(d.row_range(r * run, run), d_part));
    }
  }
}

TEST_P(RouterTest, LimitsTheChoiceToTheBestGroups) {
  Rig rig(2, GetParam());
  for (const RouterMode mode :
       {RouterMode::kSoftmax, RouterMode::kTopkSoftmax, RouterMode::kSigmoid}) {
    // Groups of one, two and many experts; all groups kept; as many experts as the kept ones have.
    for (const auto& [experts, groups, kept, active] : {std::array<int64_t, 4>{7, 7, 3, 3},
                                                        {12, 6, 2, 3},
                                                        {66, 6, 3, 8},
                                                        {64, 64, 9, 8},
                                                        {20, 4, 4, 3},
                                                        {21, 3, 1, 7}}) {
      const Router router{mode, true, active, 1.0f, groups, kept};
      const Tensor logits = rig.normal("l", {211, experts});
      const Outputs got(rig, router, logits);
      Numbers index, weight;
      for (int64_t r = 0; r < 211; ++r) {
        const NaiveRow row = naive_row(router, numbers(logits.row(r)));
        append(index, Numbers(row.index.begin(), row.index.end()));
        append(weight, row.weight);
      }
      EXPECT_EQ(numbers(got.index), index) << experts << " experts in " << groups << " groups";
      EXPECT_TRUE(Near(got.weight, weight, tolerance(DType::kF32, experts)));
    }
  }
  EXPECT_THROW(Outputs(rig, {.active = 5, .groups = 2, .kept_groups = 1}, rig.normal("l", {3, 8})),
               Error);
  EXPECT_THROW(Outputs(rig, {.active = 1, .groups = 3}, rig.normal("l", {3, 8})), Error);
}

TEST_P(RouterTest, TheBiasChoosesButDoesNotWeigh) {
  Rig rig(2, GetParam());
  const Router router{RouterMode::kSigmoid, true, 3, 1.5f};
  const Tensor logits = rig.normal("l", {97, 13}), bias = rig.normal("b", {13}, 0.3);
  const Outputs got(rig, router, logits);
  kernels::route_forward(rig.exec, router, {.logits = logits, .bias = bias}, got.views());
  Numbers index, weight;
  int64_t moved = 0;
  for (int64_t r = 0; r < 97; ++r) {
    const Numbers row = numbers(logits.row(r));
    const NaiveRow want = naive_row(router, row, {}, numbers(bias));
    if (want.index != naive_row(router, row).index) ++moved;
    append(index, Numbers(want.index.begin(), want.index.end()));
    append(weight, want.weight);
  }
  EXPECT_GT(moved, 40) << "this bias hardly matters";
  EXPECT_EQ(numbers(got.index), index);
  EXPECT_TRUE(Near(got.weight, weight, tolerance(DType::kF32, 13)));
}

TEST_P(RouterTest, WeighsAChoiceThatIsGiven) {
  Rig rig(2, GetParam());
  for (const Router& router : kRouters) {
    const Tensor logits = rig.normal("l", {53, 11});
    const Outputs made(rig, router, logits), given(rig, router, logits);
    for (int64_t i = 0; i < given.index.elements(); ++i) {
      host<int32_t>(given.index)[i] = static_cast<int32_t>(i % 11);
    }
    const kernels::RouterInput in{.logits = logits, .choice = kernels::Choice::kGiven};
    kernels::route_forward(rig.exec, router, in, given.views());
    Numbers weight;
    for (int64_t r = 0; r < 53; ++r) {
      std::vector<int> chosen;
      for (int64_t j = 0; j < router.active; ++j) {
        chosen.push_back(static_cast<int>((r * router.active + j) % 11));
      }
      append(weight, naive_row(router, numbers(logits.row(r)), chosen).weight);
    }
    EXPECT_TRUE(Near(given.weight, weight, tolerance(DType::kF32, 11)));
    // The choice that it would have made itself gives the same bits.
    const Outputs again(rig, router, logits);
    kernels::route_forward(rig.exec, router, in, again.views());
    EXPECT_TRUE(SameBits(again.weight, made.weight));
  }
}

TEST_P(RouterTest, MeasuresEntropyInNats) {
  Rig rig(2, GetParam());
  for (const RouterMode mode : {RouterMode::kSoftmax, RouterMode::kSigmoid}) {
    const Tensor logits = rig.normal("l", {5, 19}, 3.0), entropy = rig.exec.empty({5});
    for (int e = 0; e < 19; ++e) {
      host<float>(logits)[e] = 0.25f;                         // even
      host<float>(logits)[19 + e] = e == 7 ? 60.0f : -90.0f;  // certain; the others underflow
    }
    const Outputs got(rig, {.mode = mode}, logits);
    kernels::Routed views = got.views();
    views.entropy = entropy;
    kernels::route_forward(rig.exec, {.mode = mode}, {.logits = logits}, views);
    Numbers want;
    for (int64_t r = 0; r < 5; ++r) {
      double sum = 0;
      for (const double p : naive_row({.mode = mode}, numbers(logits.row(r))).probabilities) {
        if (p > 0) sum -= p * std::log(p);
      }
      want.push_back(sum);
    }
    EXPECT_NEAR(want[0], std::log(19.0), 1e-9);
    EXPECT_TRUE(Near(entropy, want, tolerance(DType::kF32, 19)));
  }
}

TEST_P(RouterTest, GivesTheSameBitsForAnyThreads) {
  for (const Router& router :
       {Router{RouterMode::kSoftmax, true, 4}, Router{RouterMode::kSigmoid, true, 4, 2.0f, 8, 3}}) {
    const auto run = [&](int threads) {
      Rig rig(threads, GetParam());
      const Tensor logits = rig.normal("l", {1009, 64}), fraction = rig.normal("f", {64});
      const Tensor d_logits = rig.exec.empty({1009, 64});
      const Outputs got(rig, router, logits);
      kernels::route_backward(rig.exec, router, logits, got.views(),
                              {got.weight, fraction, 0.1f, 0.2f}, d_logits);
      return std::tuple(numbers(got.probabilities), numbers(got.weight), numbers(d_logits));
    };
    const auto one = run(1);
    EXPECT_EQ(one, run(2));
    EXPECT_EQ(one, run(3));
  }
}

TEST_P(RouterTest, WorksWithoutTokens) {
  Rig rig(2, GetParam());
  EXPECT_EQ(Outputs(rig, {.active = 2}, rig.exec.empty({0, 4})).bad, -1);
}

INSTANTIATE_TEST_SUITE_P(Every, RouterTest, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
