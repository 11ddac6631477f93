// Tensor ranks give what one rank gives: outputs, input gradients and the gradients of all weights,
// combined from slices; alone and with sequence ranks, for every line of mixers.def.
#include "core/host_access.h"
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

// Not every mixer can have six heads here (they divide the hidden width), or be split by three
// (groups).
TEST_P(TensorLaws, ThreeRanks) {
  try {
    expect_like_one({.tensor = 3, .heads = 6});
  } catch (const ConfigError& refused) {
    GTEST_SKIP() << refused.what();
  }
}

TEST_P(TensorLaws, WithSequenceRanks) { expect_like_one({.tensor = 2, .sequence = 2}); }

// Decoding: some tokens, then one by one; every rank holds the states of its heads. Four ranks
// share two kv heads.
TEST_P(TensorLaws, CarryTheStatesOfTheirHeads) {
  constexpr int kRanks = 4;
  const int64_t tokens = 19;
  const Tensor x = rig.normal("x", {tokens, kHidden});
  const OverRanks one(rig, GetParam(), x, rig.exec.zeros(x.shape()), {0, tokens}, 1, {});
  const Tensor y = rig.exec.zeros(x.shape());
  run_ranks(kRanks, [&](ThreadComm& comm, Exec& exec) {
    Coordinates here;
    here[Axis::kTensor] = {comm.rank(), kRanks};
    Rig mine(1);
    const Made made(mine, exec, GetParam(), 4, here, &comm);
    MixerState state;
    for (int32_t at = 0; at < tokens;) {
      const int32_t count = at == 0 ? 11 : 1;
      SavedStack saved;
      StepContext step;
      const Tensor part = exec.empty({count, kHidden});
      std::copy_n(host<float>(x) + at * kHidden, count * kHidden, host<float>(part));
      const Sequence sequence = make_sequence({0, count}, {at});
      const Tensor out = made.mixer->forward(exec, part, {sequence, &state, &step}, saved);
      comm.all_reduce(exec, out, ReduceOp::kSum);
      if (comm.rank() == 0) {
        std::copy_n(host<float>(out), count * kHidden, host<float>(y) + at * kHidden);
      }
      at += count;
    }
  });
  EXPECT_TRUE(Near(y, one.y, kTolerance));
}

// Heads that cannot be split are refused with the nearest number that can.
TEST(TensorRefusals, NameTheOptionAndTheNearestValue) {
  struct Wrong {
    const char *mixer, *options, *option, *nearest;
    int ranks;
  };
  const Wrong kWrong[] = {
      {"softmax", "heads = 4", "heads = 4", "number of heads is 3", 3},
      {"softmax", "heads = 12\nkv_heads = 4\ndk = 4\ndv = 4", "kv_heads = 4", "kv heads is 3", 3},
      {"softmax", "heads = 12\nkv_heads = 2\ndk = 4\ndv = 4", "kv_heads = 2", "kv heads is 1", 3},
      {"mamba", "inner = 40", "inner: 40", "that works is 39", 3},
      {"s4", "inner = 41", "inner: 41", "that works is 42", 2},
      {"mamba2", "heads = 12\ninner = 48\ngroups = 4\nstate = 12", "groups = 4", "works is 3", 3},
      {"mamba2", "heads = 4\ninner = 48\nstate = 7", "state: 7", "that works is 8", 2}};
  for (const Wrong& wrong : kWrong) {
    Coordinates here;
    here[Axis::kTensor] = {0, wrong.ranks};
    ParameterStore store(here);
    const Build build{.store = store, .scope = "t.", .hidden = kHidden};
    const OptionTable options = OptionTable::parse(wrong.options);
    try {
      make_mixer(wrong.mixer, MixerBuild{build, options});
      ADD_FAILURE() << wrong.mixer << " with " << wrong.options << " was accepted";
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(wrong.option), std::string::npos) << text;
      EXPECT_NE(text.find(wrong.nearest), std::string::npos) << text;
      EXPECT_NE(text.find("parallel.tensor"), std::string::npos) << text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TensorLaws, testing::ValuesIn(mixers_and_variants()), name_of_case);

}  // namespace
}  // namespace weft::test
