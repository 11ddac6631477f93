// Experts that take no more than so many rows.
#include <algorithm>

#include "core/host_access.h"
#include "kernels/routing/router.h"
#include "tests/kernels/numeric.h"

namespace weft::test {
namespace {

using kernels::ExpertOrder;
using kernels::Keep;

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
          const ExpertOrder some = kernels::limited(rig.exec, all, p.weight, capacity, keep);
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
  const ExpertOrder order = kernels::limited(
      rig.exec, kernels::order_by_expert(rig.exec, p.index, 7), p.weight, 13, Keep::kHeaviest);
  const int64_t rows = order.offsets.back();
  ASSERT_LT(rows, 303);
  const Tensor values = rig.normal("v", {101, 3}), sorted = rig.exec.empty({rows});
  const Tensor back = rig.normal("was there before", {101, 3});
  kernels::permute_pairs(rig.exec, order, values, sorted);
  kernels::unpermute_pairs(rig.exec, order, sorted, back);
  const Tensor outputs = rig.normal("r", {rows, 9}), y = rig.exec.empty({101, 9});
  kernels::combine_rows(rig.exec, order, outputs, y);
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
  const ExpertOrder order = kernels::limited(rig.exec, kernels::order_by_expert(rig.exec, none, 3),
                                             weight, 4, Keep::kHeaviest);
  EXPECT_EQ(order.offsets, (std::vector<int64_t>{0, 0, 0, 0}));
}

INSTANTIATE_TEST_SUITE_P(Every, Capacity, testing::ValuesIn(available_isas()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::test
