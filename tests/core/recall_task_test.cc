#include "core/data/recall_task.h"

#include <gtest/gtest.h>

#include <map>

#include "core/base/error.h"

namespace weft {
namespace {

TEST(RecallTask, AsksOnlyWhatWasSaid) {
  const RecallTask task{.vocab = 33, .pairs = 9, .queries = 5, .gap = 3, .seed = 4};
  for (int64_t i = 0; i < 50; ++i) {
    const RecallExample e = recall_example(task, i);
    ASSERT_EQ(e.tokens.size(), 2u * 9 + 3 + 2 * 5);
    ASSERT_EQ(e.answers.size(), 5u);
    std::map<int32_t, int32_t> said;
    for (size_t p = 0; p < 9; ++p) {
      EXPECT_TRUE(said.emplace(e.tokens[2 * p], e.tokens[2 * p + 1]).second) << "a key twice";
      EXPECT_GE(e.tokens[2 * p], 1);
      EXPECT_LT(e.tokens[2 * p], 17);
      EXPECT_GE(e.tokens[2 * p + 1], 17);
      EXPECT_LT(e.tokens[2 * p + 1], 33);
    }
    for (size_t g = 18; g < 21; ++g) EXPECT_EQ(e.tokens[g], 0);
    for (const int64_t answer : e.answers) {
      const auto at = static_cast<size_t>(answer);
      EXPECT_EQ(said.at(e.tokens[at - 1]), e.tokens[at]);
    }
  }
  EXPECT_EQ(recall_example(task, 7).tokens, recall_example(task, 7).tokens);
  EXPECT_NE(recall_example(task, 7).tokens, recall_example(task, 8).tokens);
}

TEST(RecallTask, RefusesMorePairsThanKeys) {
  EXPECT_THROW(recall_example({.vocab = 16, .pairs = 8}, 0), ConfigError);
}

TEST(RecallTask, AsksEveryKeyOnceInEveryRound) {
  const RecallExample e = recall_example({.vocab = 64, .pairs = 7, .queries = 17}, 3);
  std::map<int32_t, int> asked;
  for (size_t q = 0; q < 14; ++q) ++asked[e.tokens[static_cast<size_t>(e.answers[q]) - 1]];
  EXPECT_EQ(asked.size(), 7u);
  for (const auto& [key, times] : asked) EXPECT_EQ(times, 2) << "key " << key;
  EXPECT_EQ(e.answers.size(), 17u);
}

}  // namespace
}  // namespace weft
