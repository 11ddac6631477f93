// Tensor ranks give what one rank gives: outputs, input gradients and the gradients of all weights,
// put together from their slices; alone and with sequence ranks. For every line of mixers.def.
#include "tests/layers/mixer_cases.h"

namespace weft::test {
namespace {

class TensorLaws : public Gradients, public testing::WithParamInterface<std::string> {
 protected:
  void expect_like_one(const Degrees& degrees) {
    // Documents of one token and some that cross sequence ranks.
    const std::vector<int32_t> documents = {0, 7, 8, 24, 36, 41};
    const Tensor x = rig.normal("x", {41, kHidden}), dy = rig.normal("dy", {41, kHidden});
    const OverRanks one(rig, GetParam(), x, dy, documents, 1, {.heads = degrees.heads});
    const OverRanks many(rig, GetParam(), x, dy, documents, 1, degrees);
    const std::string layout =
        fmt::format("tensor {} x sequence {}", degrees.tensor, degrees.sequence);
    EXPECT_TRUE(Near(many.y, one.y, kTolerance)) << layout;
    EXPECT_TRUE(Near(many.dx, one.dx, kTolerance)) << layout;
    EXPECT_EQ(many.weights.size(), one.weights.size());
    for (const auto& [name, grad] : one.weights) {
      EXPECT_TRUE(near_enough(many.weights.at(name), grad, one.largest()))
          << name << ", " << layout;
    }
  }
};

TEST_P(TensorLaws, TwoRanks) { expect_like_one({.tensor = 2}); }

// As many ranks as heads: fewer kv heads than ranks where there are any.
TEST_P(TensorLaws, FourRanks) { expect_like_one({.tensor = 4}); }

// Not every mixer can have six heads here (they divide the hidden width), or be cut by three
// (groups).
TEST_P(TensorLaws, ThreeRanks) {
  try {
    expect_like_one({.tensor = 3, .heads = 6});
  } catch (const ConfigError& refused) {
    GTEST_SKIP() << refused.what();
  }
}

TEST_P(TensorLaws, WithSequenceRanks) { expect_like_one({.tensor = 2, .sequence = 2}); }

INSTANTIATE_TEST_SUITE_P(All, TensorLaws, testing::ValuesIn(mixers_and_variants()), name_of_case);

}  // namespace
}  // namespace weft::test
