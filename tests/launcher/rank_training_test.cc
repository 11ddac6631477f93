// The training batches of tests with sequence ranks. If every document started with a rank's span,
// no state, halo or adjoint would cross ranks, and those tests would be void.
#include "tests/support/rank_training.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/layout/layout.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

struct BatchCase {
  const char* name;
  Batch (*make)(const Config& config, Pool& pool, int64_t first, int64_t rows);
  int64_t length;
};

class TestBatch : public testing::TestWithParam<BatchCase> {
 protected:
  // Starts of the documents of a row, in tokens.
  std::vector<int64_t> starts(int64_t row) {
    const Config config = tiny_hybrid({"train.sequence=" + std::to_string(GetParam().length)});
    const Batch batch = GetParam().make(config, rig_.pool, row, 1);
    EXPECT_EQ(batch.documents.front(), 0);
    EXPECT_EQ(batch.documents.back(), GetParam().length);
    return {batch.documents.begin(), batch.documents.end() - 1};
  }
  Rig rig_;
};

TEST_P(TestBatch, HasDocumentsAcrossEveryBorderOfRanks) {
  for (const int ranks : {2, 3, 4}) {
    for (int rank = 1; rank < ranks; ++rank) {
      const int64_t border = even_part(GetParam().length, rank, ranks).begin;
      int crossed = 0;
      for (int64_t row = 0; row < 3; ++row) {
        const std::vector<int64_t> all = starts(row);
        if (std::find(all.begin(), all.end(), border) == all.end()) ++crossed;
      }
      EXPECT_GT(crossed, 0) << "rank " << rank << " of " << ranks << " starts at " << border;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TestBatch,
                         testing::Values(BatchCase{"rule_23", rule_batch, 23},
                                         BatchCase{"rule_29", rule_batch, 29},
                                         BatchCase{"packed_23", packed_batch, 23},
                                         BatchCase{"packed_29", packed_batch, 29}),
                         [](const auto& info) { return info.param.name; });

// Rank borders of every kind: inside a document, at the start of one, and inside one that covers a
// whole span.
TEST(RuleBatch, HasDocumentsThatPassARankAndThatStartWithOne) {
  Rig rig;
  const Config config = tiny_hybrid();
  const auto documents = [&](int64_t row) {
    return rule_batch(config, rig.pool, row, 1).documents;
  };
  EXPECT_EQ(documents(0), (std::vector<int32_t>{0, 8, 23}));
  EXPECT_EQ(documents(1), (std::vector<int32_t>{0, 11, 23}));
  EXPECT_EQ(documents(2), (std::vector<int32_t>{0, 23}));
}

}  // namespace
}  // namespace weft::test
