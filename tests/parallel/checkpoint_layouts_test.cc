// Any layout reads checkpoints of any other: weights split in every way that a spec allows, written
// by the ranks of one layout and read by those of another, are compared element by element.
#include <gtest/gtest.h>

#include <set>

#include "core/host_access.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/comm/thread_comm.h"
#include "parallel/optimizer.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

// Replicated, cut by rows and by columns, stacked matrices cut apart, shared heads, extents that do
// not divide, experts cut twice, one number, state without gradient; and one per pipeline stage.
std::vector<ParameterSpec> specs(const Coordinates& here) {
  std::vector<ParameterSpec> all = {
      {.name = "norm", .global = {7}},
      {.name = "rows", .global = {11, 3}, .splits = {{.dim = 0, .axis = Axis::kTensor}}},
      {.name = "columns", .global = {5, 8}, .splits = {{.dim = 1, .axis = Axis::kTensor}}},
      {.name = "gate_up",
       .global = {10, 3},
       .splits = {{.dim = 0, .axis = Axis::kTensor, .blocks = {6, 4}}}},
      {.name = "experts",
       .global = {6, 8, 3},
       .splits = {{.dim = 0, .axis = Axis::kExpert},
                  {.dim = 1, .axis = Axis::kExpertTensor, .blocks = {4, 4}}},
       .expert = true},
      {.name = "cube", .global = {3, 5, 2}},
      {.name = "bias", .global = {5}, .buffer = true},
      {.name = "one", .global = {}},
  };
  const int kv_replicas = here[Axis::kTensor].size == 4 ? 2 : 1;  // two heads for four ranks
  all.push_back(
      {.name = "kv",
       .global = {8, 2},
       .splits = {{.dim = 0, .axis = Axis::kTensor, .replicas = kv_replicas, .unit = 4}}});
  const Coordinates::Place pipe = here[Axis::kPipe];
  for (int block = 0; block < 4; ++block) {
    if (block * pipe.size / 4 != pipe.index) continue;
    all.push_back({.name = fmt::format("block.{}", block), .global = {4, 2}});
  }
  // Shared parameters are on the first stage only.
  if (pipe.index > 0) all.erase(all.begin(), all.end() - 4 / pipe.size);
  return all;
}

struct Case {
  ParallelConfig degrees;
  int world;
};
const std::vector<Case> kLayouts = {
    {{}, 1},
    {{}, 3},
    {{.zero = 0}, 3},
    {{.tensor = 2, .expert = 2}, 4},
    {{.pipe = 2}, 2},
    {{.pipe = 4, .zero = 0}, 4},
    {{.tensor = 2, .pipe = 2, .expert = 2}, 4},
    {{.tensor = 4, .expert = 2, .expert_tensor = 2}, 4},
    {{.tensor = 2, .sequence = 3, .expert = 6, .zero = 0}, 6},
    {{.tensor = 2, .sequence = 2, .expert = 3, .expert_tensor = 2}, 12},
};

float value_of(const std::string& tensor, int64_t index) {
  uint32_t h = 2166136261u;
  for (const char c : tensor) h = (h ^ static_cast<uint8_t>(c)) * 16777619u;
  return static_cast<float>(h % 4096) + static_cast<float>(index) / 1024;
}

// Calls visit(global index, element) for every element of a tensor that a rank holds.
template <class Visit>
void each_element(const SavedTensor& t, Visit&& visit) {
  int stacked = 0;
  for (int d = 0; t.slices.size() > 1 && d < t.global.dims(); ++d) {
    if (t.slices[0].offset[d] != t.slices[1].offset[d]) stacked = d;
  }
  int64_t before = 0;  // extent of the boxes before, along the stacked dim
  for (const Slice& box : t.slices) {
    for (int64_t i = 0; i < box.extent.elements(); ++i) {
      int64_t rest = i, global = 0, local = 0, global_stride = 1, local_stride = 1;
      for (int d = t.global.dims() - 1; d >= 0; --d) {
        const int64_t at = rest % box.extent[d];
        rest /= box.extent[d];
        global += (box.offset[d] + at) * global_stride;
        local += (at + (d == stacked ? before : 0)) * local_stride;
        global_stride *= t.global[d];
        local_stride *= t.local.shape()[d];
      }
      visit(global, host<float>(t.local)[local]);
    }
    if (t.global.dims() > 0) before += box.extent[stacked];
  }
}

// One rank's weights and moments, with the tensors that it saves and reads.
struct RankState {
  RankState(const Case& c, ThreadComm& world)
      : layout{c.degrees, world.rank(), c.world, coordinates_of(c.degrees, world.rank(), c.world)},
        mesh(std::make_shared<Mesh>(layout,
                                    [&](int color, int key, const std::string& axis) {
                                      return world.split(color, key, axis);
                                    })),
        store(layout.here) {
    for (ParameterSpec& spec : specs(layout.here)) store.declare(std::move(spec));
    store.allocate(pool, DType::kF32, ParameterStore::Gradients::kNone);
    sync.emplace(store, *mesh, c.degrees.zero == 0 ? Zero::kWhole : Zero::kSharded);
    optimizer.emplace(store, pool, AdamOptions{}, mesh, *sync);
  }

  std::vector<SavedTensor> everything() {
    std::vector<SavedTensor> all = optimizer->moments_to_load();
    for (Parameter& p : store.all()) {
      all.push_back({"parameters/" + p.spec.name, p.spec.global, p.slices, p.master});
    }
    return all;
  }

  Layout layout;
  std::shared_ptr<Mesh> mesh;
  Ledger ledger;
  Pool pool{ledger};
  ParameterStore store;
  std::optional<GradientSync> sync;
  std::optional<Optimizer> optimizer;
};

void write_by(const Case& c, const std::string& folder) {
  run_ranks(c.world, [&](ThreadComm& world, Exec& exec) {
    RankState rank(c, world);
    for (const SavedTensor& t : rank.everything()) {
      each_element(t, [&](int64_t i, float& x) { x = value_of(t.name, i); });
    }
    save_checkpoint(exec, rank.mesh->hosts(), folder, {.step = 3},
                    rank.optimizer->tensors_to_save(), 0);
  });
}

class CheckpointLayouts : public testing::TestWithParam<size_t> {};

TEST_P(CheckpointLayouts, AreReadByAllOthers) {
  const ScratchFolder folder;
  write_by(kLayouts[GetParam()], folder / "c");
  const FoundCheckpoint found = verify_completely(folder / "c/step-000000003");
  for (const Case& reader : kLayouts) {
    run_ranks(reader.world, [&](ThreadComm& world, Exec&) {
      for (const bool newest : {false, true}) {  // while it is checked, or only read
        RankState rank(reader, world);
        const std::vector<SavedTensor> all = rank.everything();
        if (newest) {
          load_newest(world.hosts(), {folder / "c", [](const std::string& what) { FAIL() << what; },
                                      [&](const FoundCheckpoint&) { return all; }});
        } else {
          load_tensors(found, all);
        }
        for (const SavedTensor& t : all) {
          int64_t wrong = 0;
          each_element(t, [&](int64_t i, float& x) { wrong += x != value_of(t.name, i); });
          EXPECT_EQ(wrong, 0) << t.name << " on rank " << world.rank() << " of " << reader.world;
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointLayouts, testing::Range<size_t>(0, kLayouts.size()));

TEST(CheckpointReader, OpensOnlyTheFilesItNeeds) {
  const ScratchFolder folder;
  const auto spec = [](int) -> ParameterSpec {
    return {.name = "w", .global = {8, 3}, .splits = {{.dim = 0, .axis = Axis::kTensor}}};
  };
  const auto piece = [&](Exec& exec, int rank, int ranks) -> SavedTensor {
    Coordinates here;
    here[Axis::kTensor] = {rank, ranks};
    return {"w", {8, 3}, slices_of(spec(0), here), exec.zeros(local_shape(spec(0), here))};
  };
  run_ranks(4, [&](ThreadComm& world, Exec& exec) {
    save_checkpoint(exec, world.hosts(), folder / "c", {.step = 1}, {piece(exec, world.rank(), 4)},
                    0);
  });
  const FoundCheckpoint found = verify_checkpoint(folder / "c/step-000000001");
  ASSERT_EQ(found.manifest.files.size(), 4u);
  run_ranks(1, [&](ThreadComm&, Exec& exec) {
    for (const int ranks : {1, 2, 4, 8}) {
      for (int rank = 0; rank < ranks; ++rank) {
        CheckpointReader reader(found);
        reader.read(piece(exec, rank, ranks));
        EXPECT_EQ(reader.files_opened(), static_cast<size_t>(std::max(1, 4 / ranks)));
      }
    }
  });
  // Files that a rank does not need may even be missing.
  std::filesystem::remove(found.path + "/rank-00003.h5");
  run_ranks(1, [&](ThreadComm&, Exec& exec) {
    EXPECT_NO_THROW(load_tensors(found, {piece(exec, 0, 2)}));
    EXPECT_THROW(load_tensors(found, {piece(exec, 1, 2)}), ConfigError);
  });
}

TEST(Checkpoint, ReplicasAreWrittenOnce) {
  const ScratchFolder folder;
  write_by({{.tensor = 2, .zero = 0}, 6}, folder / "c");
  const FoundCheckpoint found = verify_checkpoint(folder / "c/step-000000003");
  int64_t written = 0, elements = 0;
  std::set<std::string> seen;
  for (const Manifest::Piece& p : found.manifest.pieces) {
    written += p.slice.extent.elements();
    if (seen.insert(p.tensor).second) elements += p.global.elements();
  }
  EXPECT_EQ(written, elements);
}

}  // namespace
}  // namespace weft::test
