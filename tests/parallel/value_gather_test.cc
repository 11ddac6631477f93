// Gathering of weights that overlaps the next forward: each layer's weights are complete after the
// wait, and equal to those of a blocking gather.
#include <gtest/gtest.h>

#include "core/host_access.h"
#include "parallel/comm/thread_comm.h"
#include "parallel/optimizer.h"
#include "parallel/parameter_values.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

constexpr int64_t kLayers = 5;

std::vector<ParameterSpec> specs() {
  std::vector<ParameterSpec> out = {{.name = "embed.weight", .global = {11, 8}}};
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string block = "block." + std::to_string(layer) + ".";
    out.push_back({.name = block + "norm1.weight", .global = {8}, .layer = layer, .f32 = true});
    out.push_back({.name = block + "mixer.q.weight", .global = {13, 8}, .layer = layer});
    out.push_back({.name = block + "mlp.up.weight", .global = {12, 40}, .layer = layer});
    out.push_back({.name = block + "bias", .global = {4}, .layer = layer, .buffer = true});
  }
  out.push_back({.name = "norm.weight", .global = {8}, .layer = kLayers - 1, .f32 = true});
  out.push_back({.name = "head.weight", .global = {11, 8}, .layer = kLayers - 1});
  return out;
}

// A rank's parameters: its own rows have new values, other rows old ones.
struct Place {
  Place(ThreadComm& world, Exec& exec, DType type, int64_t bucket)
      : layout{{}, world.rank(), world.size(), coordinates_of({}, world.rank(), world.size())},
        mesh(
            layout,
            [&](int color, int key, const std::string& axis) {
              return world.split(color, key, axis);
            },
            Signatures::kCompare),
        store(layout.here) {
    for (const ParameterSpec& spec : specs()) store.declare(spec);
    store.allocate(pool, type, ParameterStore::Gradients::kAllocate);
    sync.emplace(store, mesh, Zero::kSharded, bucket);
    renew(exec, 0);
  }
  // The value of every element after step `step`, on the rank that owns it.
  static float value(size_t parameter, int64_t element, int step) {
    return static_cast<float>((static_cast<int64_t>(parameter) * 37 + element * 5 + step * 11) %
                              97);
  }
  void renew(Exec& exec, int step) {
    for (size_t i = 0; i < store.all().size(); ++i) {
      Parameter& p = store.all()[i];
      const IndexRange rows = sync->of(i).rows;
      const int64_t width = row_width(p.shape);
      for (int64_t e = rows.begin * width; e < rows.end * width; ++e) {
        host<float>(p.master)[e] = value(i, e, step);
      }
      if (host_bytes(p.value) == host_bytes(p.master)) continue;
      for (int64_t e = rows.begin * width; e < rows.end * width; ++e) {
        host<bf16>(p.value)[e] = to_bf16(value(i, e, step));
      }
    }
    (void)exec;
    sync->values_changed();
  }
  bool is_new(size_t i, int step) const {
    const std::vector<double> have = numbers(store.all()[i].value);
    for (size_t e = 0; e < have.size(); ++e) {
      if (have[e] != value(i, static_cast<int64_t>(e), step)) return false;
    }
    return true;
  }
  // True for all parameters with this prefix.
  bool is_new(const std::string& prefix, int step) const {
    for (size_t i = 0; i < store.all().size(); ++i) {
      const ParameterSpec& spec = store.all()[i].spec;
      if (!spec.buffer && spec.name.starts_with(prefix) && !is_new(i, step)) return false;
    }
    return true;
  }

  Layout layout;
  Mesh mesh;
  Ledger ledger;
  Pool pool{ledger};
  ParameterStore store;
  std::optional<GradientSync> sync;
};

TEST(ValueGather, EveryLayerFindsItsOwn) {
  for (const int ranks : {2, 3}) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      for (const int64_t bucket : {int64_t{64}, int64_t{600}, GradientSync::kBucket}) {
        run_ranks(ranks, [&](ThreadComm& world, Exec& exec) {
          Place place(world, exec, type, bucket);
          for (int step = 0; step < 3; ++step) {
            place.renew(exec, step);
            EXPECT_FALSE(place.is_new("", step));
            place.sync->start_values(exec);
            place.sync->await_values(exec, -1);
            EXPECT_TRUE(place.is_new("embed", step));
            for (int64_t layer = 0; layer < kLayers; ++layer) {
              place.sync->await_values(exec, layer);
              EXPECT_TRUE(place.is_new("block." + std::to_string(layer) + ".", step)) << layer;
            }
            EXPECT_TRUE(place.is_new("", step)) << "with the last layer norm and head";
          }
        });
      }
    }
  }
}

// With buckets of a layer or less, the last layers have not started when the first one runs.
TEST(ValueGather, TheFirstLayersComeFirst) {
  run_ranks(2, [&](ThreadComm& world, Exec& exec) {
    Place place(world, exec, DType::kF32, 64);
    const auto bytes = [&] { return place.mesh.tally().of("data", "all_gather").bytes; };
    place.renew(exec, 1);
    place.sync->start_values(exec);
    int64_t before = bytes();
    EXPECT_GT(before, 0);
    for (int64_t layer = -1; layer < kLayers - 1; ++layer) {
      place.sync->await_values(exec, layer);
      EXPECT_GT(bytes(), before) << layer;
      before = bytes();
    }
    place.sync->await_values(exec, kLayers);
    const int64_t together = bytes();
    place.mesh.tally().reset();
    place.sync->values_changed();
    place.sync->complete_values(exec);
    EXPECT_EQ(bytes(), together) << "as many as at once";
  });
}

// Steps of an optimizer with overlapped or blocking gathering of weights.
TEST(ValueGather, AnOptimizerWaitsBeforeItChangesWhatIsStillSent) {
  std::vector<double> weights[2];
  for (const bool overlap : {false, true}) {
    run_ranks(3, [&](ThreadComm& world, Exec& exec) {
      Ledger ledger;
      Pool pool{ledger};
      const Layout layout{{}, world.rank(), 3, coordinates_of({}, world.rank(), 3)};
      const auto mesh = std::make_shared<Mesh>(
          layout,
          [&](int color, int key, const std::string& axis) {
            return world.split(color, key, axis);
          },
          Signatures::kCompare);
      ParameterStore store(layout.here);
      for (const ParameterSpec& spec : specs()) store.declare(spec);
      store.allocate(pool, DType::kF32, ParameterStore::Gradients::kAllocate);
      initialize(exec, store, 4);
      GradientSync sync(store, *mesh, Zero::kSharded);
      Optimizer optimizer(store, pool, {}, mesh, sync);
      for (int step = 1; step <= 4; ++step) {
        if (step != 3) sync.start_values(exec);  // not waited for: complete before the next update
        for (Parameter& p : store.all()) {
          for (int64_t e = 0; e < p.grad.elements(); ++e) {
            host<float>(p.grad)[e] = static_cast<float>((e * 3 + step) % 7 - 3);
          }
        }
        if (step == 2) sync.await_values(exec, 1);
        sync.reduce_gradients(exec);
        optimizer.step(exec, 0.1, 1.0, step);
        if (!overlap) sync.complete_values(exec);
      }
      sync.complete_values(exec);
      if (world.rank() != 0) return;
      for (const Parameter& p : store.all()) {
        const std::vector<double> mine = numbers(p.value);
        auto& all = weights[overlap ? 1 : 0];
        all.insert(all.end(), mine.begin(), mine.end());
      }
    });
  }
  EXPECT_EQ(weights[0], weights[1]);
}

}  // namespace
}  // namespace weft::test
