#include "kernels/routing/expert_order.h"

#include <algorithm>
#include <numeric>

#include "core/host_access.h"
#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

using kernels::ExpertOrder;
using kernels::Keep;

class Order : public testing::TestWithParam<Isa> {
 protected:
  static Tensor choices(Rig& rig, int64_t tokens, int64_t active, int64_t experts) {
    const RandomStream stream(5, "choices");
    const Tensor out = rig.exec.empty({tokens, active}, DType::kI32);
    for (int64_t i = 0; i < tokens * active; ++i) {
      // Every third expert stays without tokens.
      const auto e = static_cast<int64_t>(
          stream.below(static_cast<uint64_t>(i), static_cast<uint64_t>(experts)));
      host<int32_t>(out)[i] = static_cast<int32_t>(e % 3 == 2 ? 0 : e);
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
        const int32_t* expert = host<int32_t>(index);
        std::stable_sort(pairs.begin(), pairs.end(),
                         [&](int64_t a, int64_t b) { return expert[a] < expert[b]; });
        ASSERT_EQ(order.offsets.size(), 18u);
        EXPECT_EQ(order.offsets.front(), 0);
        EXPECT_EQ(order.offsets.back(), tokens * active);
        for (size_t s = 0; s < pairs.size(); ++s) {
          const auto row = static_cast<int64_t>(s);
          ASSERT_EQ(host<int32_t>(order.token)[s], pairs[s] / active);
          ASSERT_EQ(host<int32_t>(order.row)[pairs[s]], row);
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
  kernels::permute_pairs(rig.exec, order.row, values, sorted);
  for (int64_t i = 0; i < 307 * 3; ++i) {
    ASSERT_EQ(host<float>(sorted)[host<int32_t>(order.row)[i]], host<float>(values)[i]);
  }
  kernels::unpermute_pairs(rig.exec, order.row, sorted, back);
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
        const int64_t pair = i / width, row = host<int32_t>(order.row)[pair];
        want[static_cast<size_t>(pair / active * width + i % width)] +=
            values[static_cast<size_t>(row * width + i % width)];
      }
      kernels::combine_rows(rig.exec, order.row, rows, y,
                            accumulate ? kernels::Write::kAccumulate : kernels::Write::kReplace);
      EXPECT_TRUE(Near(y.view(), want, tolerance(out, active)));
      EXPECT_TRUE(y.surroundings_kept());
    }
  }
}

// A negative expert is none. Such pairs are skipped as if they were not there.
TEST_P(Order, SkipsPairsOfNobody) {
  Rig rig(2, GetParam());
  const Tensor index = choices(rig, 101, 3, 17);
  int32_t* expert = host<int32_t>(index);
  for (int64_t i = 0; i < index.elements(); i += 4) expert[i] = -1;
  const ExpertOrder order = kernels::order_by_expert(rig.exec, index, 17);
  std::vector<std::pair<int32_t, int32_t>> pairs;  // expert, pair: what is left, sorted
  for (int32_t i = 0; i < index.elements(); ++i) {
    if (expert[i] >= 0) pairs.emplace_back(expert[i], i);
  }
  std::sort(pairs.begin(), pairs.end());
  ASSERT_EQ(order.token.elements(), std::ssize(pairs));
  EXPECT_EQ(order.offsets.back(), std::ssize(pairs));
  for (int64_t i = 0; i < index.elements(); ++i) {
    const int32_t row = host<int32_t>(order.row)[i];
    if (expert[i] < 0) {
      EXPECT_EQ(row, -1);
      continue;
    }
    EXPECT_EQ(pairs[static_cast<size_t>(row)].second, i);
    EXPECT_EQ(host<int32_t>(order.token)[row], i / 3);
  }
}

TEST_P(Order, WorksWithoutTokensAndRefusesExpertsThatAreNotThere) {
  Rig rig(2, GetParam());
  const Tensor none = rig.exec.empty({0, 2}, DType::kI32);
  const ExpertOrder order = kernels::order_by_expert(rig.exec, none, 3);
  EXPECT_EQ(std::vector<int64_t>(order.offsets.begin(), order.offsets.end()),
            (std::vector<int64_t>{0, 0, 0, 0}));
  kernels::permute_pairs(rig.exec, order.row, rig.exec.empty({0, 2}), rig.exec.empty({0}));
  kernels::unpermute_pairs(rig.exec, order.row, {}, {});
  kernels::combine_rows(rig.exec, order.row, rig.exec.empty({0, 5}), rig.exec.empty({0, 5}));
  const Tensor index = choices(rig, 4, 2, 3);
  host<int32_t>(index)[5] = 3;
  EXPECT_THROW(kernels::order_by_expert(rig.exec, index, 3), Error);
}

INSTANTIATE_TEST_SUITE_P(Every, Order, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

struct Pairs {
  Tensor index, weight;
};

// Expert 0 is crowded, expert 2 empty; weights repeat, so that there are ties.
Pairs pairs(Rig& rig, int64_t tokens, int64_t active, int64_t experts) {
  const RandomStream stream(5, "pairs");
  Pairs out{rig.exec.empty({tokens, active}, DType::kI32), rig.exec.empty({tokens, active})};
  for (int64_t i = 0; i < tokens * active; ++i) {
    const auto e = static_cast<int64_t>(
        stream.below(static_cast<uint64_t>(i), static_cast<uint64_t>(experts)));
    host<int32_t>(out.index)[i] = static_cast<int32_t>(e == 2 ? 0 : e);
    host<float>(out.weight)[i] = 0.125f * static_cast<float>((i * 7) % 5);
  }
  return out;
}

// Which pairs stay, by the definition: for every expert its pairs in token order, sorted stably.
std::vector<bool> kept(const Pairs& p, int64_t experts, int64_t capacity, Keep keep) {
  std::vector<bool> out(static_cast<size_t>(p.index.elements()));
  for (int64_t e = 0; e < experts; ++e) {
    std::vector<int64_t> mine;
    for (int64_t i = 0; i < p.index.elements(); ++i) {
      if (host<int32_t>(p.index)[i] == e) mine.push_back(i);
    }
    if (keep == Keep::kHeaviest) {
      std::stable_sort(mine.begin(), mine.end(), [&](int64_t a, int64_t b) {
        return host<float>(p.weight)[a] > host<float>(p.weight)[b];
      });
    }
    mine.resize(std::min(mine.size(), static_cast<size_t>(capacity)));
    for (const int64_t i : mine) out[static_cast<size_t>(i)] = true;
  }
  return out;
}

class Capacity : public testing::TestWithParam<Isa> {};

TEST_P(Capacity, KeepsTheFirstOrTheHeaviestPairsOfEachExpert) {
  for (const int threads : {1, 3}) {
    Rig rig(threads, GetParam());
    for (const int64_t tokens : {1, 5, 1009}) {
      for (const int64_t capacity : {0, 1, 3, 211, 100000}) {
        for (const Keep keep : {Keep::kFirst, Keep::kHeaviest}) {
          const Pairs p = pairs(rig, tokens, 2, 5);
          const ExpertOrder all = kernels::order_by_expert(rig.exec, p.index, 5);
          const ExpertOrder some =
              kernels::limit_to_capacity(rig.exec, all, p.weight, capacity, keep);
          const std::vector<bool> want = kept(p, 5, capacity, keep);
          int32_t next[5];
          for (int e = 0; e < 5; ++e) next[e] = static_cast<int32_t>(some.offsets[e]);
          for (int64_t i = 0; i < tokens * 2; ++i) {
            const int32_t row = host<int32_t>(some.row)[i], e = host<int32_t>(p.index)[i];
            ASSERT_EQ(row, want[static_cast<size_t>(i)] ? next[e]++ : -1) << "pair " << i;
            if (row < 0) continue;
            ASSERT_EQ(host<int32_t>(some.token)[row], i / 2);
          }
          for (int e = 0; e < 5; ++e) EXPECT_EQ(next[e], some.offsets[e + 1]);
          EXPECT_EQ(some.token.elements(), some.offsets[5]);
        }
      }
    }
  }
}

TEST_P(Capacity, ADroppedPairAddsNothing) {
  Rig rig(2, GetParam());
  const Pairs p = pairs(rig, 101, 3, 7);
  const ExpertOrder order = kernels::limit_to_capacity(
      rig.exec, kernels::order_by_expert(rig.exec, p.index, 7), p.weight, 13, Keep::kHeaviest);
  const int64_t rows = order.offsets.back();
  ASSERT_LT(rows, 303);
  const Tensor values = rig.normal("v", {101, 3}), sorted = rig.exec.empty({rows});
  const Tensor back = rig.normal("was there before", {101, 3});
  kernels::permute_pairs(rig.exec, order.row, values, sorted);
  kernels::unpermute_pairs(rig.exec, order.row, sorted, back);
  const Tensor outputs = rig.normal("r", {rows, 9}), y = rig.exec.empty({101, 9});
  kernels::combine_rows(rig.exec, order.row, outputs, y);
  Numbers want(101 * 9);
  for (int64_t i = 0; i < 303; ++i) {
    const int32_t row = host<int32_t>(order.row)[i];
    EXPECT_EQ(host<float>(back)[i], row < 0 ? 0.0f : host<float>(values)[i]);
    for (int64_t d = 0; d < 9 && row >= 0; ++d) {
      want[static_cast<size_t>(i / 3 * 9 + d)] += host<float>(outputs)[row * 9 + d];
    }
  }
  EXPECT_TRUE(Near(y, want, tolerance(DType::kF32, 3)));
}

TEST_P(Capacity, WorksWithoutTokens) {
  Rig rig(2, GetParam());
  const Tensor none = rig.exec.empty({0, 2}, DType::kI32), weight = rig.exec.empty({0, 2});
  const ExpertOrder order = kernels::limit_to_capacity(
      rig.exec, kernels::order_by_expert(rig.exec, none, 3), weight, 4, Keep::kHeaviest);
  EXPECT_EQ(std::vector<int64_t>(order.offsets.begin(), order.offsets.end()),
            (std::vector<int64_t>{0, 0, 0, 0}));
}

INSTANTIATE_TEST_SUITE_P(Every, Capacity, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
