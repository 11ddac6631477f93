// The file of a rank is read back while it is written, in little memory.
#include "parallel/checkpoint/part_file.h"
#include "core/host_access.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/files/hash.h"
#include "core/files/hdf5.h"
#include "parallel/checkpoint/boxes.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_write.h"
#include "tests/support/rig.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

constexpr int64_t kMiB = 1 << 20;

std::vector<float> numbers(int64_t count, float first) {
  std::vector<float> all(static_cast<size_t>(count));
  for (size_t i = 0; i < all.size(); ++i) all[i] = first + static_cast<float>(i % 1013);
  return all;
}

std::span<const std::byte> bytes_in(const std::vector<float>& x) {
  return std::as_bytes(std::span(x));
}

// Vectors as the slices of one file, still to be written.
struct Draft {
  Draft(const std::string& path, const std::vector<int64_t>& sizes) {
    std::vector<Hdf5Dataset> sets;
    for (const int64_t n : sizes) sets.push_back({fmt::format("v{}", sets.size()), {n}});
    const std::vector<int64_t> positions = create_hdf5(path, sets);
    for (size_t i = 0; i < sets.size(); ++i) {
      pieces.push_back({sets[i].name, "rank-00000.h5", sets[i].name, sets[i].shape,
                        whole_of(sets[i].shape), positions[i]});
      data.push_back(numbers(sizes[i], static_cast<float>(i)));
    }
  }
  std::vector<Manifest::Piece> pieces;
  std::vector<std::vector<float>> data;
};

// Empty, smaller and larger than a block, in an order that is not the file's.
TEST(PartFile, HashesSlicesAndFileAsTheyStandThere) {
  const ScratchFolder folder;
  const std::string path = folder / "rank-00000.h5";
  Draft d(path, {3, 700000, 0, 262144, 1, 999});
  PartFile file(path, d.pieces, {});
  for (const size_t i : {3, 0, 5, 2, 1, 4}) file.write(i, bytes_in(d.data[i]).data());
  const Manifest::File whole = file.finish();
  EXPECT_EQ(whole.name, "rank-00000.h5");
  EXPECT_EQ(whole.bytes, static_cast<int64_t>(std::filesystem::file_size(path)));
  const std::string bytes = get_file(path);
  std::string blocks;
  for (size_t at = 0; at < bytes.size(); at += kMiB) blocks += hash_of(bytes.substr(at, kMiB));
  EXPECT_EQ(whole.blocks, blocks);
  EXPECT_EQ(hash_of(whole), hash_of(blocks));
  for (size_t i = 0; i < d.pieces.size(); ++i) {
    EXPECT_EQ(d.pieces[i].hash, hash_of(bytes_in(d.data[i]))) << i;
  }
}

// The follower waits for the first slice, so that an earlier change of the second one is seen.
TEST(PartFile, ThatReadsBackOtherBytesIsRefused) {
  const ScratchFolder folder;
  const std::string path = folder / "rank-00000.h5";
  Draft d(path, {500000, 600000});
  PartFile file(path, d.pieces, {});
  file.write(1, bytes_in(d.data[1]).data());
  {
    std::fstream disk(path, std::ios::in | std::ios::out | std::ios::binary);
    disk.seekp(d.pieces[1].position + 2 * kMiB);
    disk.put('\x5a');
  }
  file.write(0, bytes_in(d.data[0]).data());
  const std::string said = message_of<Error>([&] { file.finish(); });
  EXPECT_NE(said.find("reads back other bytes than were written (v1)"), std::string::npos) << said;
}

TEST(PartFile, LeftInTheMiddleWaitsForNobody) {
  const ScratchFolder folder;
  const std::string path = folder / "rank-00000.h5";
  Draft d(path, {500000, 600000});
  PartFile file(path, d.pieces, {});
  file.write(1, bytes_in(d.data[1]).data());
}

// Peak memory of this process in bytes since the last reset.
int64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  return 0;
}
bool forget_peak() { return static_cast<bool>(std::ofstream("/proc/self/clear_refs") << "5\n"); }

// Memory beyond the tensors: one box at a time of tensors with several, which is less than the
// shard, and a constant (blocks, threads, HDF5).
TEST(WritePart, TakesAtMostOneCopyOfTheLargestShard) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take memory of their own";
#endif
  const ScratchFolder folder;
  Rig rig;
  const auto filled = [&](const Shape& shape) {
    const Tensor t = rig.exec.empty(shape);
    std::fill_n(host<float>(t), t.elements(), 1.5f);
    return t;
  };
  const Shape shape = {64, 4, 16 << 10};  // 16 MiB
  std::vector<SavedTensor> tensors;
  for (int i = 0; i < 3; ++i) {
    tensors.push_back({fmt::format("plain{}", i), shape, {whole_of(shape)}, filled(shape)});
  }
  // Rows 0 to 15 and 32 to 79 of a tensor of twice as many: one shard of two boxes.
  tensors.push_back({"boxes",
                     {128, 4, 16 << 10},
                     {{{0, 0, 0}, {16, 4, 16 << 10}}, {{32, 0, 0}, {48, 4, 16 << 10}}},
                     filled(shape)});
  write_part(folder.path(), 7, 1, {{"small", {3}, {whole_of({3})}, filled({3})}});  // HDF5 awakes
  if (!forget_peak()) GTEST_SKIP() << "this system does not let a process forget its peak";
  const int64_t before = peak_memory(), shard = 4 * shape.elements();
  write_part(folder.path(), 0, 1, tensors);
  EXPECT_LE(peak_memory() - before, shard + 8 * kMiB);
  std::filesystem::remove_all(folder / "rank-00000.h5");
}

}  // namespace
}  // namespace weft::test
