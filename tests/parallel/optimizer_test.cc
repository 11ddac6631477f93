#include "parallel/optimizer.h"
#include "core/host_access.h"
#include "parallel/parameter_values.h"

#include <gtest/gtest.h>

#include <cmath>

#include "parallel/comm/thread_comm.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

// Two parameters whose gradients have a joint norm of 5: (3, 0, ...) and (4, 0, ...).
class OptimizerTest : public testing::Test {
 protected:
  OptimizerTest()
      : decayed(store.declare({.name = "b", .global = {3, 5}, .init = Init::constant(2.0)})),
        plain(store.declare(
            {.name = "a", .global = {7}, .init = Init::constant(2.0), .weight_decay = false})) {
    store.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kAllocate);
    initialize(rig.exec, store, 1);
    host<float>(decayed.grad)[0] = 3;
    host<float>(plain.grad)[0] = 4;
  }
  Rig rig;
  ParameterStore store;
  Parameter& decayed;
  Parameter& plain;
};

TEST_F(OptimizerTest, CountsEveryParameterOnceInTheNorm) {
  const Optimizer optimizer(store, rig.pool, {});
  EXPECT_DOUBLE_EQ(optimizer.gradient_norm(rig.exec), 5.0);
  host<float>(decayed.grad)[14] = NAN;  // the last element
  EXPECT_FALSE(std::isfinite(optimizer.gradient_norm(rig.exec)));
}

TEST_F(OptimizerTest, ScalesGradientsBeforeTheMoments) {
  // With a large epsilon the update is proportional to the gradient: lr * g / (|g| + eps).
  Optimizer optimizer(store, rig.pool, {.epsilon = 1e3, .weight_decay = 0});
  optimizer.step(rig.exec, 1.0, 0.2, 1);  // a norm of 5 clipped to 1
  EXPECT_NEAR(2.0 - host<float>(decayed.master)[0], 0.6 / 1000.6, 1e-6);
  EXPECT_NEAR(2.0 - host<float>(plain.master)[0], 0.8 / 1000.8, 1e-6);
}

TEST_F(OptimizerTest, DecaysOnlyWhatItsSpecSays) {
  Optimizer optimizer(store, rig.pool, {.weight_decay = 0.5});
  optimizer.step(rig.exec, 0.1, 0.0, 1);  // no gradient: decay alone
  EXPECT_NEAR(host<float>(decayed.master)[3], 2.0 * (1 - 0.1 * 0.5), 1e-6);
  EXPECT_FLOAT_EQ(host<float>(plain.master)[3], 2.0f);
}

TEST_F(OptimizerTest, TellsPackedCopiesThatWeightsChanged) {
  Optimizer optimizer(store, rig.pool, {});
  const uint64_t before = plain.version;
  optimizer.step(rig.exec, 0.1, 1.0, 1);
  EXPECT_GT(plain.version, before);
}

// Two ranks that share a large bf16 weight: each keeps master weights of its half alone.
TEST(OptimizerMemory, MasterWeightsOfOtherRanksGoBackToTheSystem) {
  run_ranks(2, [](ThreadComm& world, Exec& exec) {
    const Layout layout{{}, world.rank(), 2, coordinates_of({}, world.rank(), 2)};
    const auto mesh = std::make_shared<Mesh>(
        layout,
        [&](int color, int key, const std::string& axis) { return world.split(color, key, axis); });
    Ledger ledger;
    Pool pool{ledger};
    ParameterStore store(layout.here);
    const int64_t rows = 1024, width = 512;
    Parameter& w = store.declare({.name = "w", .global = {rows, width}, .init = Init::constant(1)});
    Parameter& norm =
        store.declare({.name = "n", .global = {8192}, .init = Init::constant(1), .f32 = true});
    store.allocate(pool, DType::kBF16, ParameterStore::Gradients::kAllocate);
    initialize(exec, store, 1);
    const int64_t whole = ledger.of(Label::kMaster).live;
    {
      GradientSync sync(store, *mesh, Zero::kSharded);
      Optimizer optimizer(store, pool, {.weight_decay = 0}, mesh, sync);
      for (int step = 1; step <= 2; ++step) {
        std::fill_n(host<float>(w.grad), w.grad.elements(), 1.0f);
        sync.reduce_gradients(exec);
        optimizer.step(exec, 0.1, 1.0, step);
        sync.complete_values(exec);
      }
      EXPECT_EQ(ledger.of(Label::kMaster).live, whole - rows * width / 2 * 4);
      const float* mine = host<float>(w.master) + world.rank() * rows * width / 2;
      EXPECT_LT(*mine, 1.0f) << "it was trained";
      EXPECT_EQ(host<float>(norm.value)[8191 * (1 - world.rank())], 1.0f)
          << "used by all, kept by all";
      for (int64_t i : {int64_t{0}, rows * width - 1}) {
        EXPECT_LT(to_float(host<bf16>(w.value)[i]), 1.0f) << "both halves came from their owners";
      }
    }
    EXPECT_EQ(ledger.of(Label::kMaster).live, whole);
  });
}

}  // namespace
}  // namespace weft::test
