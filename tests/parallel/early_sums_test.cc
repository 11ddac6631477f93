// Gradient reduction that overlaps backward gives the bits of reduction at the end.
#include <gtest/gtest.h>

#include <cstring>

#include "core/base/rng.h"
#include "core/host_access.h"
#include "parallel/comm/thread_comm.h"
#include "parallel/gradient_sync.h"

namespace weft::test {
namespace {

constexpr int64_t kLayers = 3;

// Blocks with weights of odd sizes, some larger than a bucket; a weight outside blocks; a norm with
// a partial gradient; a buffer.
std::vector<ParameterSpec> specs() {
  std::vector<ParameterSpec> out = {{.name = "embed.weight", .global = {11, 8}}};
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string block = "block." + std::to_string(layer) + ".";
    out.push_back({.name = block + "mixer.q.weight", .global = {13, 8}, .layer = layer});
    out.push_back({.name = block + "mixer.gate", .global = {5}, .layer = layer});
    out.push_back({.name = block + "norm1.weight",
                   .global = {8},
                   .partial_over = {Axis::kTensor},
                   .layer = layer});
    out.push_back({.name = block + "mlp.up.weight", .global = {12, 40}, .layer = layer});
    out.push_back({.name = block + "bias", .global = {4}, .layer = layer, .buffer = true});
  }
  out.push_back({.name = "norm.weight", .global = {8}, .layer = kLayers - 1});
  out.push_back({.name = "head.weight", .global = {11, 8}, .layer = kLayers - 1});
  return out;
}

// Reduced values of one rank's own rows when backward reports the stages `done` in order.
std::vector<float> sums(int ranks, int rank, const std::vector<int64_t>& done, int64_t bucket,
                        int64_t* early_bytes = nullptr) {
  std::vector<float> out;
  run_ranks(ranks, [&](ThreadComm& world, Exec& exec) {
    const ParallelConfig degrees;
    const Layout layout{degrees, world.rank(), ranks, coordinates_of(degrees, world.rank(), ranks)};
    const Splitter split = [&](int color, int key, const std::string& axis) {
      return world.split(color, key, axis);
    };
    const Mesh mesh(layout, split);
    Ledger ledger;
    Pool pool{ledger};
    ParameterStore store(layout.here);
    for (const ParameterSpec& spec : specs()) store.declare(spec);
    store.allocate(pool, DType::kF32, ParameterStore::Gradients::kAllocate);
    GradientSync sync(store, mesh, Zero::kSharded, bucket);
    for (int step = 0; step < 2; ++step) {  // nothing is left over from the first
      mesh.tally().reset();
      for (Parameter& p : store.all()) {
        const RandomStream random(static_cast<uint64_t>(7 + world.rank() + 10 * step), p.spec.name);
        for (int64_t e = 0; e < p.grad.elements(); ++e) {
          host<float>(p.grad)[e] = static_cast<float>(random.normal(static_cast<uint64_t>(e)));
        }
      }
      for (const int64_t layer : done) sync.layer_done(exec, layer);
      if (early_bytes != nullptr && world.rank() == 0) {
        *early_bytes = mesh.tally().of("data", "reduce_scatter").bytes;
      }
      sync.reduce_gradients(exec);
    }
    if (world.rank() != rank) return;
    for (size_t i = 0; i < store.all().size(); ++i) {
      const Parameter& p = store.all()[i];
      if (p.spec.buffer) continue;
      const IndexRange rows = sync.of(i).rows;
      const int64_t width = row_width(p.shape);
      const float* data = host<float>(p.grad);
      out.insert(out.end(), data + rows.begin * width, data + rows.end * width);
    }
  });
  return out;
}

TEST(EarlySums, GiveTheBitsOfSumsAtTheEnd) {
  for (const int ranks : {2, 3}) {
    for (const int64_t bucket : {int64_t{64}, int64_t{300}, GradientSync::kBucket}) {
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<float> at_the_end = sums(ranks, rank, {}, bucket);
        ASSERT_FALSE(at_the_end.empty());
        EXPECT_EQ(sums(ranks, rank, {2, 1, 0}, bucket), at_the_end)
            << ranks << " ranks, " << bucket;
        EXPECT_EQ(sums(ranks, rank, {2}, bucket), at_the_end);     // the others at the end
        EXPECT_EQ(sums(ranks, rank, {1, 0}, bucket), at_the_end);  // stages in another order
      }
    }
  }
}

TEST(EarlySums, TravelAsSoonAsTheirLayersAreDone) {
  int64_t bytes = 0;
  sums(2, 0, {}, 64, &bytes);
  EXPECT_EQ(bytes, 0);
  sums(2, 0, {2}, 64, &bytes);
  const int64_t last = bytes;
  EXPECT_GT(last, 0);
  sums(2, 0, {2, 1, 0}, 64, &bytes);
  EXPECT_GT(bytes, last);
  // One bucket for all blocks: complete with the first one alone.
  sums(2, 0, {2, 1}, GradientSync::kBucket, &bytes);
  EXPECT_EQ(bytes, 0);
}

TEST(PendingSums, AreFormedInRankOrder) {
  run_ranks(3, [](ThreadComm& world, Exec& exec) {
    const Tensor all = exec.empty({3, 70000});
    for (int64_t i = 0; i < all.elements(); ++i) {
      host<float>(all)[i] = static_cast<float>((i * 7 + world.rank() * 13) % 101) * 0.37f;
    }
    const Tensor want = exec.empty({70000});
    world.reduce_scatter(exec, all, want);
    const Tensor apart = exec.empty({70000}), in_place = all.row(world.rank());
    world.start_reduce_scatter(exec, all, apart)->wait();
    EXPECT_EQ(std::memcmp(host_bytes(apart), host_bytes(want), 70000 * sizeof(float)), 0);
    world.start_reduce_scatter(exec, all, in_place)->wait();
    EXPECT_EQ(std::memcmp(host_bytes(in_place), host_bytes(want), 70000 * sizeof(float)), 0);
  });
}

}  // namespace
}  // namespace weft::test
