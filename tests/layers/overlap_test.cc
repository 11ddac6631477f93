// Work between the start of an exchange and its wait: independent work with overlap, none without.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "core/host_access.h"
#include "layers/basic/mlp.h"
#include "layers/block.h"
#include "layers/mixers/registry.h"
#include "layers/moe/moe.h"
#include "parallel/comm/thread_comm.h"
#include "parallel/comm/traced_comm.h"
#include "parallel/parameter_values.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"
#include "tests/support/watched_comm.h"

namespace weft::test {
namespace {

bool all_zero(const Tensor& t) {
  return std::all_of(host<float>(t), host<float>(t) + t.elements(),
                     [](float x) { return x == 0.0f; });
}

const Tensor& gradient_of(ParameterStore& store, const char* name) {
  const Parameter* found = store.find(name);
  WEFT_CHECK(found != nullptr, "no parameter {}", name);
  return found->grad;
}

constexpr int64_t kHidden = 24, kTokens = 16;

// A mixture of experts on one of two ranks.
struct MoeOnRank {
  MoeOnRank(Communicator& ranks, Rig& rig) : store(place(ranks)), moe(build(), options()) {
    store.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kAllocate);
    initialize(rig.exec, store, 3);
    zero_gradients(rig.exec, store);
  }
  static Coordinates place(Communicator& ranks) {
    Coordinates here;
    here[Axis::kExpert] = {ranks.rank(), ranks.size()};
    return here;
  }
  static MoeOptions options() {
    return {.router = {.rule = {.active = 2}, .experts = 4}, .width = 12, .shared_width = 40};
  }
  Build build() { return {.store = store, .scope = "t.", .hidden = kHidden}; }
  const Tensor& gradient(const char* name) { return gradient_of(store, name); }

  ParameterStore store;
  Moe moe;
};

TEST(ExpertOverlap, TheSharedExpertComputesWhileRowsTravel) {
  run_ranks(2, [](ThreadComm& world, Exec&) {
    Rig rig(1);
    Watched ranks(world);
    MoeOnRank on(ranks, rig);
    StepContext context{.expert_ranks = &ranks};
    SavedStack saved;
    const Tensor x = rig.normal("x", {kTokens, kHidden}), dy = rig.normal("dy", {kTokens, kHidden});
    // Forward: the shared expert's saved pre-activations exist when the rows are waited for.
    std::vector<int64_t> live;
    ranks.look = [&](const std::string&) {
      live.push_back(rig.ledger.of(Label::kActivations).live);
    };
    const int64_t before = rig.ledger.of(Label::kActivations).live;
    on.moe.forward(rig.exec, x, context, saved);
    ASSERT_EQ(live.size(), 2u) << "dispatch and return";
    EXPECT_GE(live[0] - before, kTokens * 2 * 40 * 4);
    // Backward: the shared expert's gradients overlap the first exchange, the experts' own the
    // second.
    std::vector<bool> shared, experts;
    ranks.look = [&](const std::string&) {
      shared.push_back(!all_zero(on.gradient("t.shared.w_down")));
      experts.push_back(!all_zero(on.gradient("t.experts.w_gate_up")));
    };
    on.moe.backward(rig.exec, dy, context, saved);
    EXPECT_EQ(shared, (std::vector<bool>{true, true, true}));
    EXPECT_EQ(experts, (std::vector<bool>{false, true, true}));
  });
}

TEST(ExpertOverlap, NothingIsUnderWayWhereItIsSwitchedOff) {
  run_ranks(2, [](ThreadComm& world, Exec&) {
    Rig rig(1);
    Watched ranks(world);
    MoeOnRank on(ranks, rig);
    StepContext context{.expert_ranks = &ranks, .overlap = Overlap::kOff};
    SavedStack saved;
    ranks.look = [](const std::string& operation) { ADD_FAILURE() << operation; };
    on.moe.forward(rig.exec, rig.normal("x", {kTokens, kHidden}), context, saved);
    on.moe.backward(rig.exec, rig.normal("dy", {kTokens, kHidden}), context, saved);
  });
}

// A block on one of two tensor ranks: softmax attention and a dense MLP.
struct BlockOnRank {
  BlockOnRank(Communicator& ranks, Rig& rig, DType type)
      : store(place(ranks)), block(make(ranks, type)) {
    store.allocate(rig.pool, type, ParameterStore::Gradients::kAllocate);
    initialize(rig.exec, store, 3);
    zero_gradients(rig.exec, store);
  }
  static Coordinates place(Communicator& ranks) {
    Coordinates here;
    here[Axis::kTensor] = {ranks.rank(), ranks.size()};
    return here;
  }
  Block make(Communicator& ranks, DType type) {
    const Build build{
        .store = store, .scope = "t.", .hidden = kHidden, .compute = type, .tensor_ranks = &ranks};
    RmsNorm norm1(build, "norm1");
    auto mixer = make_mixer("softmax", MixerBuild{build.in("mixer"), options});
    auto norm2 = std::make_unique<RmsNorm>(build, "norm2");
    auto mlp = std::make_unique<Mlp>(build.in("mlp"), 36);
    return Block(std::move(mixer), norm1, std::move(mlp), std::move(norm2), Recompute::kNone,
                 &ranks);
  }
  Tensor backward(Rig& rig, Overlap overlap) {
    const Sequence sequence = make_sequence({0, kTokens});
    StepContext context{.overlap = overlap};
    SavedStack saved;
    const Tensor x = rig.normal("x", {kTokens / 2, kHidden}),
                 dy = rig.normal("dy", {kTokens / 2, kHidden});
    block.forward(rig.exec, x, sequence, context, saved);
    after_forward();
    return block.backward(rig.exec, dy, sequence, context, saved);
  }
  const Tensor& gradient(const char* name) { return gradient_of(store, name); }

  std::function<void()> after_forward = [] {};
  OptionTable options = OptionTable::parse("heads = 4");
  ParameterStore store;
  Block block;
};

TEST(TensorOverlap, GradientsOfWeightsAreComputedWhileThatOfTheInputIsSummed) {
  run_ranks(2, [](ThreadComm& world, Exec&) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      Rig rig(1);
      Watched ranks(world);
      BlockOnRank on(ranks, rig, type), off(ranks, rig, type);
      std::vector<bool> mlp, mixer;
      ranks.look = [&](const std::string& operation) {
        EXPECT_EQ(operation, "reduce_scatter");
        mlp.push_back(!all_zero(on.gradient("t.mlp.w_gate_up")));
        mixer.push_back(!all_zero(on.gradient("t.mixer.q_proj.weight")));
      };
      const Tensor dx = on.backward(rig, Overlap::kOn);
      EXPECT_EQ(mlp, (std::vector<bool>{true, true}));
      EXPECT_EQ(mixer, (std::vector<bool>{false, true}));
      ranks.look = [](const std::string& operation) { ADD_FAILURE() << operation; };
      EXPECT_TRUE(SameBits(dx, off.backward(rig, Overlap::kOff)));
      for (size_t i = 0; i < on.store.all().size(); ++i) {
        const Parameter &a = on.store.all()[i], &b = off.store.all()[i];
        EXPECT_TRUE(SameBits(a.grad, b.grad)) << a.spec.name;
      }
    }
  });
}

// In bf16 tokens and gradients are gathered as they enter products: two bytes each. Sums are f32.
TEST(TensorBytes, GathersCarryTheComputeType) {
  run_ranks(2, [](ThreadComm& world, Exec&) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      Rig rig(1);
      CommTally tally;
      TracedComm ranks(world.split(0, world.rank(), "tensor"), "tensor", tally);
      BlockOnRank on(ranks, rig, type);
      const int64_t gathered = 2 * kTokens / 2 * kHidden * size_of(type);
      on.after_forward = [&] {
        EXPECT_EQ(tally.of("tensor", "all_gather").bytes, gathered);
        tally.reset();
      };
      on.backward(rig, Overlap::kOn);
      EXPECT_EQ(tally.of("tensor", "all_gather").bytes, gathered);
      EXPECT_EQ(tally.of("tensor", "reduce_scatter").bytes, 2 * kTokens / 2 * kHidden * 4);
    }
  });
}

}  // namespace
}  // namespace weft::test
