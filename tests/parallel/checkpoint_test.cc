#include "parallel/checkpoint/checkpoint.h"
#include "core/host_access.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/files/hash.h"
#include "core/parameter.h"
#include "tests/parallel/small_checkpoints.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

// Gate and up rows cut apart over two tensor ranks, as SwiGLU's are.
ParameterSpec gate_up() {
  return {.name = "w",
          .global = {6, 4},
          .splits = {{.dim = 0, .axis = Axis::kTensor, .blocks = {4, 2}}}};
}

Coordinates tensor_rank(int index, int size) {
  Coordinates here;
  here[Axis::kTensor] = {index, size};
  return here;
}

SavedTensor piece(Rig& rig, const Coordinates& here) {
  const ParameterSpec spec = gate_up();
  return {"parameters/w", spec.global, slices_of(spec, here),
          rig.exec.zeros(local_shape(spec, here))};
}

// The value of element (row, column) of the global tensor is 10 row + column.
void fill(const SavedTensor& t) {
  float* out = host<float>(t.local);
  for (const Slice& s : t.slices) {
    for (int64_t r = 0; r < s.extent[0]; ++r) {
      for (int64_t c = 0; c < s.extent[1]; ++c)
        *out++ = static_cast<float>(10 * (s.offset[0] + r) + s.offset[1] + c);
    }
  }
}

TEST(Checkpoint, IsReadByAnotherLayoutThanWroteIt) {
  Rig rig;
  const ScratchFolder folder;
  const SavedTensor whole = piece(rig, tensor_rank(0, 1));
  fill(whole);
  save_checkpoint(folder / "c", {.step = 7}, {whole}, 0);
  const auto found = newest_whole(folder / "c", [](const std::string& what) { FAIL() << what; });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->manifest.step, 7);
  for (int rank = 0; rank < 2; ++rank) {
    const SavedTensor want = piece(rig, tensor_rank(rank, 2)),
                      got = piece(rig, tensor_rank(rank, 2));
    fill(want);
    load_tensors(*found, {got});
    EXPECT_TRUE(SameBits(got.local, want.local)) << "rank " << rank;
  }
}

TEST(Checkpoint, WithATensorThatIsNotCoveredIsRefused) {
  Rig rig;
  const ScratchFolder folder;
  const SavedTensor half = piece(rig, tensor_rank(1, 2));
  fill(half);
  const std::string path = save_checkpoint(folder / "c", {.step = 1}, {half}, 0);
  EXPECT_NE(message_of<ConfigError>([&] { verify_checkpoint(path); }).find("not complete"),
            std::string::npos);
}

TEST(Checkpoint, OfAnotherShapeOrWithoutATensorIsRefused) {
  Rig rig;
  const ScratchFolder folder;
  const SavedTensor whole = piece(rig, tensor_rank(0, 1));
  const FoundCheckpoint found =
      verify_checkpoint(save_checkpoint(folder / "c", {.step = 1}, {whole}, 0));
  SavedTensor other = whole;
  other.name = "parameters/v";
  EXPECT_NE(
      message_of<ConfigError>([&] { load_tensors(found, {other}); }).find("holds no parameters/v"),
      std::string::npos);
  other.name = "parameters/w";
  other.global = {6, 5};
  EXPECT_NE(message_of<ConfigError>([&] { load_tensors(found, {other}); }).find("[6, 5]"),
            std::string::npos);
}

TEST(Checkpoint, LeftUnfinishedIsNotSeen) {
  Rig rig;
  const ScratchFolder folder;
  std::filesystem::create_directories(folder / "c/.writing-step-000000009");
  EXPECT_FALSE(newest_whole(folder / "c", [](const std::string&) {}));
  save_checkpoint(folder / "c", {.step = 3}, {piece(rig, tensor_rank(0, 1))}, 0);
  EXPECT_EQ(newest_whole(folder / "c", [](const std::string&) {})->manifest.step, 3);
}

// Another version is not damage: falling back to an older checkpoint needs the user's consent.
TEST(Checkpoint, OfAnotherVersionIsRefusedWithAdvice) {
  Rig rig;
  const ScratchFolder folder;
  const SavedTensor whole = piece(rig, tensor_rank(0, 1));
  save_checkpoint(folder / "c", {.step = 3}, {whole}, 0);
  const std::string manifest =
      save_checkpoint(folder / "c", {.step = 4}, {whole}, 0) + "/manifest.json";
  nlohmann::json body = nlohmann::json::parse(get_file(manifest))["manifest"];
  body["version"] = 4;
  put_file(manifest, nlohmann::json{{"hash", hash_of(body.dump())}, {"manifest", body}}.dump());
  const std::string said = message_of<OtherVersion>(
      [&] { newest_whole(folder / "c", [](const std::string& what) { FAIL() << what; }); });
  EXPECT_NE(said.find("format 4, this program reads format 3: a newer weft"), std::string::npos)
      << said;
  EXPECT_NE(said.find("run.resume=never"), std::string::npos) << said;
}

TEST(Checkpoint, FailsWhenNoneOfThemIsWhole) {
  Rig rig;
  const ScratchFolder folder;
  const std::string path =
      save_checkpoint(folder / "c", {.step = 3}, {piece(rig, tensor_rank(0, 1))}, 0);
  std::filesystem::resize_file(path + "/rank-00000.h5", 100);
  std::string damage;
  EXPECT_THROW(newest_whole(folder / "c", [&](const std::string& what) { damage = what; }), Error);
  EXPECT_NE(damage.find("has 100 bytes"), std::string::npos) << damage;
}

}  // namespace
}  // namespace weft::test
