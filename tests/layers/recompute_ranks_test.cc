// Blocks that recompute forward do not repeat exchanges of sequence ranks, and give equal bits.
#include <gtest/gtest.h>

#include "layers/basic/mlp.h"
#include "layers/block.h"
#include "layers/mixers/registry.h"
#include "parallel/comm/thread_comm.h"
#include "parallel/comm/traced_comm.h"
#include "parallel/parameter_values.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

constexpr int64_t kHidden = 24;
constexpr int32_t kTokens = 22;

// A block on one of the ranks of an axis, and the bytes that it sends.
struct OnRank {
  // "gla" or "gla,short_conv = true"
  OnRank(ThreadComm& world, const std::string& mixer, Axis axis, Recompute recompute)
      : axis_(name_of(axis)),
        ranks(world.split(0, world.rank(), axis_), axis_, tally),
        options(OptionTable::parse("heads = 4\n" + mixer.substr(mixer.find(',') + 1))),
        store(place(world, axis)),
        block(make(mixer.substr(0, mixer.find(',')), axis, recompute)) {
    store.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kAllocate);
    initialize(rig.exec, store, 3);
    zero_gradients(rig.exec, store);
    const bool spans = axis == Axis::kSequence;
    const Sequence sequence =
        spans ? make_sequence({0, 9, kTokens}, 1, ranks) : make_sequence({0, 9, kTokens});
    const int64_t tokens = spans ? sequence.tokens() : kTokens / world.size();
    StepContext context;
    SavedStack saved;
    block.forward(rig.exec, rig.normal("x", {tokens, kHidden}), sequence, context, saved);
    dx = block.backward(rig.exec, rig.normal("dy", {tokens, kHidden}), sequence, context, saved);
    EXPECT_TRUE(saved.empty());
  }
  static Coordinates place(const Communicator& world, Axis axis) {
    Coordinates here;
    here[axis] = {world.rank(), world.size()};
    return here;
  }
  Block make(const std::string& name, Axis axis, Recompute recompute) {
    Communicator* tensor = axis == Axis::kTensor ? &ranks : nullptr;
    const Build build{.store = store, .scope = "t.", .hidden = kHidden, .tensor_ranks = tensor};
    RmsNorm norm1(build, "norm1");
    auto mixer = make_mixer(name, MixerBuild{build.in("mixer"), options});
    auto norm2 = std::make_unique<RmsNorm>(build, "norm2");
    auto mlp = std::make_unique<Mlp>(build.in("mlp"), 36);
    return Block(std::move(mixer), norm1, std::move(mlp), std::move(norm2), recompute, tensor);
  }
  int64_t calls(const char* operation) { return tally.of(axis_, operation).calls; }
  void expect_same(OnRank& other) {
    EXPECT_TRUE(SameBits(dx, other.dx));
    for (size_t i = 0; i < store.all().size(); ++i) {
      EXPECT_TRUE(SameBits(store.all()[i].grad, other.store.all()[i].grad))
          << store.all()[i].spec.name;
    }
  }

  std::string axis_;
  Rig rig{1};
  CommTally tally;
  TracedComm ranks;
  OptionTable options;
  ParameterStore store;
  Block block;
  Tensor dx;
};

class RecomputeRanks : public testing::TestWithParam<const char*> {};

TEST_P(RecomputeRanks, SendStatesAndHalosOnce) {
  run_ranks(3, [](ThreadComm& world, Exec&) {
    OnRank none(world, GetParam(), Axis::kSequence, Recompute::kNone);
    for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
      OnRank again(world, GetParam(), Axis::kSequence, recompute);
      for (const char* operation : {"all_gather", "halo", "transfer"}) {
        EXPECT_EQ(again.calls(operation), none.calls(operation)) << operation;
      }
      none.expect_same(again);
    }
  });
}

// Gathered states with halos, without; a shift; memories with their own halos; a ring.
INSTANTIATE_TEST_SUITE_P(All, RecomputeRanks,
                         testing::Values("gated_deltanet,", "mlstm,", "rwkv7,", "mom,",
                                         "ttt,inner_norm = true"),
                         [](const auto& info) {
                           const std::string mixer = info.param;
                           return mixer.substr(0, mixer.find(','));
                         });

// Unused results are not summed: selective recompute needs the mixer's inner values, not its
// result.
TEST(RecomputeTensorRanks, ScatterOnceWhereTheResultIsNotNeeded) {
  run_ranks(2, [](ThreadComm& world, Exec&) {
    OnRank none(world, "gla,", Axis::kTensor, Recompute::kNone),
        selective(world, "gla,", Axis::kTensor, Recompute::kSelective),
        full(world, "gla,", Axis::kTensor, Recompute::kFull);
    EXPECT_EQ(selective.calls("reduce_scatter"), none.calls("reduce_scatter"));
    EXPECT_EQ(selective.calls("all_gather"), none.calls("all_gather") + 1);
    EXPECT_GT(full.calls("reduce_scatter"), none.calls("reduce_scatter"));
    none.expect_same(selective);
    none.expect_same(full);
  });
}

}  // namespace
}  // namespace weft::test
