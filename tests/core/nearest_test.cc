#include "core/base/nearest.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

const std::vector<std::string> kKeys = {"steps",  "sequence", "global_batch", "micro_batch",
                                        "hidden", "lr",       "layers",       "kv_heads"};

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("steps", "steps"), 0);
  EXPECT_EQ(edit_distance("step", "steps"), 1);
  EXPECT_EQ(edit_distance("setps", "steps"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Nearest, FindsSlipsOfTheFingers) {
  EXPECT_EQ(nearest("step", kKeys), "steps");
  EXPECT_EQ(nearest("seqeunce", kKeys), "sequence");
  EXPECT_EQ(nearest("kvheads", kKeys), "kv_heads");
  EXPECT_EQ(nearest("Micro-Batch", kKeys), "micro_batch");
}

TEST(Nearest, KnowsTheNamesOfOtherTrainers) {
  EXPECT_EQ(nearest("hidden_size", kKeys), "hidden");
  EXPECT_EQ(nearest("num_layers", kKeys), "layers");
  EXPECT_EQ(nearest("learning_rate", kKeys), "lr");
}

TEST(Nearest, SaysNothingWhenNothingIsClose) {
  EXPECT_EQ(nearest("zebra", kKeys), std::nullopt);
  EXPECT_EQ(nearest("", kKeys), std::nullopt);
  EXPECT_EQ(nearest("steps", {}), std::nullopt);
  EXPECT_EQ(nearest(std::string(100000, 'x'), kKeys), std::nullopt);
  EXPECT_EQ(nearest_or_all("zebra", {"a", "b"}), "known: a, b");
}

}  // namespace
}  // namespace weft
