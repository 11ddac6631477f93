// Reading compares every block that it uses with the manifest, and reads no others.
#include "parallel/checkpoint/checkpoint_reader.h"
#include "core/host_access.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <fstream>

#include "core/files/hash.h"
#include "core/files/regular_file.h"
#include "parallel/checkpoint/boxes.h"
#include "parallel/comm/thread_comm.h"
#include "tests/parallel/small_checkpoints.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

// Some blocks with a border inside every tensor, and a prime number of columns: no run of any box
// ends where a block does.
constexpr int64_t kRows = 3001, kColumns = 257;

float value_at(int64_t row, int64_t column) { return static_cast<float>(row * kColumns + column); }

class CheckpointBlocks : public testing::Test {
 protected:
  CheckpointBlocks() {
    const Tensor large = rig.exec.empty({kRows, kColumns});
    for (int64_t i = 0; i < large.elements(); ++i) host<float>(large)[i] = static_cast<float>(i);
    std::vector<SavedTensor> tensors;
    for (int i = 0; i < 3; ++i) {
      tensors.push_back({fmt::format("small{}", i), {5}, {whole_of({5})}, rig.exec.zeros({5})});
      tensors.push_back(
          {fmt::format("large{}", i), large.shape(), {whole_of(large.shape())}, large});
    }
    found = read_checkpoint(save_checkpoint(folder / "c", {.step = 1}, tensors, 0));
  }

  SavedTensor box(const std::string& name, const Slice& slice) {
    return {name, {kRows, kColumns}, {slice}, rig.exec.zeros(slice.extent)};
  }
  static int64_t wrong_in(const SavedTensor& t) {
    int64_t wrong = 0;
    const Slice& s = t.slices[0];
    for (int64_t r = 0; r < s.extent[0]; ++r) {
      for (int64_t c = 0; c < s.extent[1]; ++c) {
        wrong +=
            host<float>(t.local)[r * s.extent[1] + c] != value_at(s.offset[0] + r, s.offset[1] + c);
      }
    }
    return wrong;
  }

  void flip_a_bit(int64_t block) {
    std::fstream disk(file, std::ios::in | std::ios::out | std::ios::binary);
    const int64_t at = std::min(block * kHashedBlock + 777, found.manifest.files[0].bytes - 1);
    disk.seekg(at);
    const int byte = disk.get();
    disk.seekp(at);
    disk.put(static_cast<char>(byte ^ 16));
  }

  const ScratchFolder folder;
  Rig rig;
  FoundCheckpoint found;
  const std::string file = folder / "c/step-000000001/rank-00000.h5";
};

TEST_F(CheckpointBlocks, GiveAnyBoxOnceAndAgain) {
  const std::vector<Slice> boxes = {{{0, 0}, {kRows, kColumns}}, {{1111, 0}, {1789, kColumns}},
                                    {{0, 100}, {kRows, 31}},     {{17, 250}, {2900, 7}},
                                    {{3000, 256}, {1, 1}},       {{2000, 3}, {1, 200}}};
  CheckpointReader reader(found);
  for (int time = 0; time < 2; ++time) {  // compared while they are read, or before
    for (const Slice& slice : boxes) {
      const SavedTensor first = box("large0", slice), third = box("large2", slice);
      const SavedTensor row = box("large2", {{slice.offset[0], 0}, {1, kColumns}});
      reader.read(std::vector{third, first, row});
      EXPECT_EQ(wrong_in(row), 0) << "beside another one of the same block";
      EXPECT_EQ(wrong_in(first), 0) << fmt::format("{}", slice.extent);
      EXPECT_EQ(wrong_in(third), 0) << fmt::format("{}", slice.extent);
    }
  }
}

TEST_F(CheckpointBlocks, AreComparedWhereSomethingIsTakenFromThem) {
  const Slice rows{{1200, 0}, {700, kColumns}};
  int64_t position = 0;
  for (const Manifest::Piece& p : found.manifest.pieces) {
    if (p.tensor == "large1") position = p.position;
  }
  const int64_t begin = position + 4 * 1200 * kColumns, end = begin + 4 * 700 * kColumns;
  const int64_t blocks = hashed_blocks(found.manifest.files[0].bytes);
  ASSERT_GT(blocks, 8);
  for (int64_t block = 0; block < blocks; ++block) {
    flip_a_bit(block);
    const bool needed = block >= begin / kHashedBlock && block <= (end - 1) / kHashedBlock;
    const SavedTensor t = box("large1", rows);
    if (needed) {
      const std::string said = message_of<Damage>([&] { CheckpointReader(found).read(t); });
      EXPECT_NE(said.find(fmt::format("bytes {} to", block * kHashedBlock)), std::string::npos)
          << said;
    } else {
      EXPECT_NO_THROW(CheckpointReader(found).read(t));
      EXPECT_EQ(wrong_in(t), 0);
    }
    // One of three ranks always checks the block, even if none needs it.
    int seen = 0;
    for (int rank = 0; rank < 3; ++rank) {
      try {
        CheckpointReader(found).read_and_check({rank, 3}, {});
      } catch (const Damage&) {
        ++seen;
      }
    }
    EXPECT_EQ(seen, 1) << block;
    flip_a_bit(block);
  }
}

TEST_F(CheckpointBlocks, ThatAreGoneAreDamage) {
  const SavedTensor t = box("large2", {{0, 0}, {kRows, kColumns}});
  CheckpointReader reader(found);
  std::filesystem::resize_file(file, 5 << 20);
  const std::string said = message_of<Damage>([&] { reader.read(t); });
  EXPECT_NE(said.find("has 5242880 bytes, the manifest says"), std::string::npos) << said;
}

TEST_F(CheckpointBlocks, TellTheirReaderThatItGetsOn) {
  int calls = 0;
  load_tensors(found, {box("large0", {{0, 0}, {2, 2}})}, [&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

// Limits the number of open files while it exists: the next one cannot be opened.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const struct rlimit none { 3, before_.rlim_max };
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  struct rlimit before_ {};
};

// A failure that says nothing about the bytes must not fall back to an older checkpoint and set the
// newest aside.
TEST(LoadNewest, TakesNoOtherFailureForDamage) {
  const ScratchFolder folder;
  run_ranks(1, [&](ThreadComm& world, Exec& exec) {
    for (int64_t step = 1; step <= 2; ++step) {
      save_checkpoint(folder / "c", {.step = step}, {rows_of(exec, 0, 1, 1)}, 0);
    }
    const SavedTensor into = rows_of(exec, 0, 1, 0);
    std::vector<std::string> said;
    const auto load = [&](const std::function<void()>& before) {
      const auto tensors = [&](const FoundCheckpoint&) {
        before();
        return std::vector{into};
      };
      load_newest(world.hosts(),
                  {folder / "c", [&](const std::string& what) { said.push_back(what); }, tensors});
    };
    std::optional<NoMoreFiles> limit;
    EXPECT_THROW(load([&] { limit.emplace(); }), OpenError);
    limit.reset();
    EXPECT_THROW(load([] { throw std::bad_alloc(); }), std::bad_alloc);
    EXPECT_THROW(load([] { throw ConfigError("another run's"); }), ConfigError);
    limit.emplace();
    EXPECT_THROW(published_checkpoints(folder / "c"), Error) << "not as if there were none";
    EXPECT_THROW(load([] {}), Error);
    limit.reset();
    EXPECT_TRUE(said.empty());
    std::filesystem::remove(folder / "c/step-000000002/rank-00000.h5");
    EXPECT_NO_THROW(load([] {}));
    EXPECT_EQ(said.size(), 1u) << "a file that is gone is damage";
  });
}

// Each of these links leads out of the folder, or could.
TEST(ReadCheckpoint, RefusesLinks) {
  const ScratchFolder folder;
  Rig rig;
  const std::string path =
      save_checkpoint(folder / "c", {.step = 1}, {rows_of(rig.exec, 0, 1, 1)}, 0);
  for (const char* name : {"rank-00000.h5", "index.h5", "manifest.json"}) {
    const std::string file = path + "/" + name, elsewhere = folder / name;
    std::filesystem::rename(file, elsewhere);
    std::filesystem::create_symlink(elsewhere, file);
    const std::string said = message_of<ConfigError>([&] { verify_completely(path); });
    EXPECT_NE(said.find(std::string(name) + ": is a link that leads elsewhere"), std::string::npos)
        << said;
    std::filesystem::remove(file);
    std::filesystem::rename(elsewhere, file);
  }
  EXPECT_NO_THROW(verify_completely(path));
}

}  // namespace
}  // namespace weft::test
