#include "kernels/router.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

using kernels::ExpertOrder;
using kernels::Router;
using kernels::RouterMode;

constexpr Router kRouters[] = {
    {RouterMode::kSoftmax, false, 1}, {RouterMode::kSoftmax, false, 3},
    {RouterMode::kSoftmax, true, 3},  {RouterMode::kTopkSoftmax, false, 3},
    {RouterMode::kSoftmax, true, 1},  {RouterMode::kTopkSoftmax, false, 5}};

struct Routed {
  Numbers probabilities, weight, log_sum_exp;
  std::vector<int> index;
};

// One token. `chosen` fixes the choice (for differences); empty: the best, ties to the lower index.
Routed naive_row(const Router& router, const Numbers& logits, std::vector<int> chosen = {}) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const double l : logits) total += std::exp(l - most);
  Routed out{{}, {}, {most + std::log(total)}, {}};
  for (const double l : logits) out.probabilities.push_back(std::exp(l - most) / total);
  if (chosen.empty()) {
    chosen.resize(logits.size());
    std::iota(chosen.begin(), chosen.end(), 0);
    std::stable_sort(chosen.begin(), chosen.end(),
                     [&](int a, int b) { return logits[a] > logits[b]; });
    chosen.resize(static_cast<size_t>(router.active));
  }
  double of_chosen = 0;
  for (const int e : chosen) of_chosen += out.probabilities[e];
  const bool share = router.mode == RouterMode::kTopkSoftmax || router.renormalize;
  for (const int e : chosen) out.weight.push_back(out.probabilities[e] / (share ? of_chosen : 1.0));
  out.index = chosen;
  return out;
}

struct Outputs {
  Outputs(Rig& rig, const Router& router, const Tensor& logits)
      : probabilities(rig.exec.empty(logits.shape())),
        index(rig.exec.empty({logits.shape()[0], router.active}, DType::kI32)),
        weight(rig.exec.empty({logits.shape()[0], router.active})),
        log_sum_exp(rig.exec.empty({logits.shape()[0]})) {
    bad =
        kernels::route_forward(rig.exec, router, logits, probabilities, index, weight, log_sum_exp);
  }
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
        const Routed row = naive_row(router, numbers(logits.row(r)));
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
  std::copy(values, values + 12, logits.data<float>());
  const Outputs got(rig, {.active = 4}, logits);
  EXPECT_EQ(numbers(got.index), (Numbers{1, 3, 5, 2, 0, 1, 2, 3}));
}

TEST_P(RouterTest, NamesTheFirstTokenWithALogitThatIsNotFinite) {
  Rig rig(3, GetParam());
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), kInf, -kInf}) {
    const Tensor logits = rig.normal("l", {701, 67});
    for (const int64_t token : {699, 333, 334}) logits.data<float>()[token * 67 + 66] = bad;
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
      kernels::route_backward(rig.exec, router, {static_cast<float>(aux), static_cast<float>(z)},
                              got.probabilities, got.index, got.weight, got.log_sum_exp,
                              losses ? ConstView(fraction) : ConstView{}, d_weight, d_logits);
      Numbers want;
      for (int64_t r = 0; r < rows; ++r) {
        const Numbers row = numbers(logits.row(r)), d = numbers(d_weight.row(r));
        const std::vector<int> chosen = naive_row(router, row).index;
        append(want, slopes(
                         [&](const Numbers& l) {
                           const Routed v = naive_row(router, l, chosen);
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

TEST_P(RouterTest, GivesTheSameBitsForAnyThreads) {
  const auto run = [&](int threads) {
    Rig rig(threads, GetParam());
    const Router router{RouterMode::kSoftmax, true, 4};
    const Tensor logits = rig.normal("l", {1009, 64}), fraction = rig.normal("f", {64});
    const Outputs got(rig, router, logits);
    kernels::route_backward(rig.exec, router, {0.1f, 0.2f}, got.probabilities, got.index,
                            got.weight, got.log_sum_exp, fraction, got.weight, logits);
    const Tensor mean = rig.exec.empty({64});
    kernels::column_mean(rig.exec, got.probabilities, mean);
    return std::tuple(numbers(got.probabilities), numbers(got.weight), numbers(logits),
                      numbers(mean));
  };
  const auto one = run(1);
  EXPECT_EQ(one, run(2));
  EXPECT_EQ(one, run(3));
}

TEST_P(RouterTest, ColumnMeanReplacesWhatWasThere) {
  Rig rig(2, GetParam());
  const Tensor p = rig.normal("p", {1301, 13}), mean = rig.normal("m", {13});
  kernels::column_mean(rig.exec, p, mean);
  Numbers want(13);
  for (size_t i = 0; i < 1301 * 13; ++i) want[i % 13] += numbers(p.row(i / 13))[i % 13] / 1301;
  // Sums of 1301 numbers of size 1 whose mean is 0.
  EXPECT_TRUE(Near(mean, want, 1e-5));
}

INSTANTIATE_TEST_SUITE_P(Every, RouterTest, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

class Order : public testing::TestWithParam<Isa> {
 protected:
  static Tensor choices(Rig& rig, int64_t tokens, int64_t active, int64_t experts) {
    const RandomStream stream(5, "choices");
    const Tensor out = rig.exec.empty({tokens, active}, DType::kI32);
    for (int64_t i = 0; i < tokens * active; ++i) {
      // Every third expert stays without tokens.
      const auto e = static_cast<int64_t>(
          stream.below(static_cast<uint64_t>(i), static_cast<uint64_t>(experts)));
      out.data<int32_t>()[i] = static_cast<int32_t>(e % 3 == 2 ? 0 : e);
    }
    return out;
  }
};

TEST_P(Order, SortsPairsByExpertThenTokenThenChoice) {
  for (const int threads : {1, 2, 3}) {
    Rig rig(threads, GetParam());
    for (const int64_t tokens : {1, 5003}) {
      for (const int64_t active : {1, 3}) {
        const Tensor index = choices(rig, tokens, active, 17);
        const ExpertOrder order = kernels::order_by_expert(rig.exec, index, 17);
        std::vector<int64_t> pairs(static_cast<size_t>(tokens * active));
        std::iota(pairs.begin(), pairs.end(), 0);
        const int32_t* expert = index.data<int32_t>();
        std::stable_sort(pairs.begin(), pairs.end(),
                         [&](int64_t a, int64_t b) { return expert[a] < expert[b]; });
        ASSERT_EQ(order.offsets.size(), 18u);
        EXPECT_EQ(order.offsets.front(), 0);
        EXPECT_EQ(order.offsets.back(), tokens * active);
        for (size_t s = 0; s < pairs.size(); ++s) {
          const auto row = static_cast<int64_t>(s);
          ASSERT_EQ(order.token.data<int32_t>()[s], pairs[s] / active);
          ASSERT_EQ(order.row.data<int32_t>()[pairs[s]], row);
          const auto e = static_cast<size_t>(expert[pairs[s]]);
          ASSERT_TRUE(order.offsets[e] <= row && row < order.offsets[e + 1]);
        }
      }
    }
  }
}

TEST_P(Order, PermutesPairsThereAndBack) {
  Rig rig(2, GetParam());
  const ExpertOrder order = kernels::order_by_expert(rig.exec, choices(rig, 307, 3, 17), 17);
  const Tensor values = rig.normal("v", {307, 3}), back = rig.exec.empty({307, 3});
  const Tensor sorted = rig.exec.empty({307 * 3});
  kernels::permute_pairs(rig.exec, order, values, sorted);
  for (int64_t i = 0; i < 307 * 3; ++i) {
    ASSERT_EQ(sorted.data<float>()[order.row.data<int32_t>()[i]], values.data<float>()[i]);
  }
  kernels::unpermute_pairs(rig.exec, order, sorted, back);
  EXPECT_TRUE(SameBits(back.view(), values.view()));
}

TEST_P(Order, CombineAddsTheRowsOfATokenInOrder) {
  Rig rig(2, GetParam());
  for (const int64_t width : {1, 7, 131}) {
    for (int mix = 0; mix < 8; ++mix) {
      const int64_t tokens = 83, active = 3;
      const DType out = kReals[mix / 2 % 2];
      const ExpertOrder order =
          kernels::order_by_expert(rig.exec, choices(rig, tokens, active, 17), 17);
      const Padded rows(rig, "r", tokens * active, width, kReals[mix % 2]);
      const Padded y(rig, "y", tokens, width, out);
      const bool accumulate = mix >= 4;
      Numbers want = accumulate ? y.numbers() : Numbers(static_cast<size_t>(tokens * width));
      const Numbers values = rows.numbers();
      for (int64_t i = 0; i < tokens * active * width; ++i) {
        const int64_t pair = i / width, row = order.row.data<int32_t>()[pair];
        want[static_cast<size_t>(pair / active * width + i % width)] +=
            values[static_cast<size_t>(row * width + i % width)];
      }
      kernels::combine_rows(
          rig.exec, order, rows, y,
          accumulate ? kernels::Combine::kAccumulate : kernels::Combine::kReplace);
      EXPECT_TRUE(Near(y.view(), want, tolerance(out, active)));
      EXPECT_TRUE(y.surroundings_kept());
    }
  }
}

TEST_P(Order, WorksWithoutTokensAndRefusesExpertsThatAreNotThere) {
  Rig rig(2, GetParam());
  const Tensor none = rig.exec.empty({0, 2}, DType::kI32);
  const ExpertOrder order = kernels::order_by_expert(rig.exec, none, 3);
  EXPECT_EQ(order.offsets, (std::vector<int64_t>{0, 0, 0, 0}));
  kernels::permute_pairs(rig.exec, order, rig.exec.empty({0, 2}), rig.exec.empty({0}));
  kernels::unpermute_pairs(rig.exec, order, {}, {});
  kernels::combine_rows(rig.exec, order, rig.exec.empty({0, 5}), rig.exec.empty({0, 5}));
  const Tensor index = choices(rig, 4, 2, 3);
  index.data<int32_t>()[5] = 3;
  EXPECT_THROW(kernels::order_by_expert(rig.exec, index, 3), Error);
  Outputs(rig, {.active = 2}, rig.exec.empty({0, 4}));
}

INSTANTIATE_TEST_SUITE_P(Every, Order, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
