// Saving in the background, and its failures (loss of power: power_loss_test.cc).
#include "parallel/checkpoint/checkpoint_saver.h"
#include "core/host_access.h"

#include <gtest/gtest.h>

#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/comm/thread_comm.h"
#include "tests/parallel/small_checkpoints.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;

TEST(CheckpointSaver, SavesWhatWasThereWhenItBegan) {
  const ScratchFolder folder;
  run_ranks(3, [&](ThreadComm& world, Exec& exec) {
    CheckpointSaver saver(exec, world.hosts(),
                          {.folder = folder / "c", .where = CheckpointSaver::Where::kBackground});
    for (int step = 1; step <= 3; ++step) {
      const auto at_step = static_cast<float>(step);
      const SavedTensor mine = rows_of(exec, world.rank(), 3, at_step);
      EXPECT_FALSE(saver.begin({.step = step}, {mine}));
      std::fill_n(host<float>(mine.local), 20, -1.0f);  // training goes on
      const std::optional<SaveResult> result = saver.finish();
      ASSERT_TRUE(result);
      EXPECT_EQ(result->failure, "");
      EXPECT_EQ(value_in(verify_completely(result->path)), at_step);
    }
    // One copy of this rank's own elements (a page), for any number of saves.
    EXPECT_EQ(exec.pool.ledger().of(Label::kMaster).peak, 4096);
  });
}

TEST(CheckpointSaver, IsDoneWhenNoRankIsBusy) {
  const ScratchFolder folder;
  run_ranks(2, [&](ThreadComm& world, Exec& exec) {
    CheckpointSaver saver(exec, world.hosts(),
                          {.folder = folder / "c", .where = CheckpointSaver::Where::kBackground});
    EXPECT_FALSE(saver.busy());
    EXPECT_FALSE(saver.advance(0));
    saver.begin({.step = 8}, {rows_of(exec, world.rank(), 2, 1)});
    EXPECT_FALSE(saver.advance(1)) << "a rank is busy";
    EXPECT_TRUE(published_checkpoints(folder / "c").empty());
    std::optional<SaveResult> result;
    while (!result) result = saver.advance(world.hosts().sum(int64_t{saver.busy()}));
    ASSERT_TRUE(result);
    EXPECT_EQ(result->path, folder / "c/step-000000008");
    EXPECT_TRUE(saver.idle());
  });
  EXPECT_EQ(value_in(newest(folder / "c")), 1);
}

TEST(CheckpointSaver, TellsAllRanksOfTheOneThatFailedAndKeepsWhatWas) {
  const ScratchFolder folder;
  for (const auto where :
       {CheckpointSaver::Where::kForeground, CheckpointSaver::Where::kBackground}) {
    const std::string path =
        folder / (where == CheckpointSaver::Where::kForeground ? "front" : "back");
    using Failing = std::optional<std::pair<int, SaveMoment>>;  // rank, moment
    const auto save = [&](int64_t step, const std::string& expected, const Failing& at = {}) {
      run_ranks(2, [&](ThreadComm& world, Exec& exec) {
        const SaveHook fail = [&](int64_t, SaveMoment moment, const SaveProgress&) {
          if (at == Failing({world.rank(), moment})) throw Error("injected");
        };
        CheckpointSaver saver(exec, world.hosts(),
                              {.folder = path, .keep = 1, .where = where, .at = fail});
        EXPECT_FALSE(saver.begin({.step = step},
                                 {rows_of(exec, world.rank(), 2, static_cast<float>(step))}));
        const std::string failure = saver.finish()->failure;
        EXPECT_EQ(failure.empty(), expected.empty()) << failure;
        EXPECT_NE(failure.find(expected), std::string::npos) << failure;
      });
    };
    save(1, "");
    for (const auto& at : {std::pair{1, SaveMoment::kWritten}, std::pair{0, SaveMoment::kIndexed},
                           std::pair{0, SaveMoment::kDescribed}}) {
      save(2, fmt::format("rank {}: injected", at.first), at);
      EXPECT_EQ(value_in(newest(path)), 1);
      EXPECT_FALSE(fs::exists(writing_path(path, 2)));
    }
    save(2, "");
    EXPECT_EQ(value_in(newest(path)), 2);
    EXPECT_EQ(published_checkpoints(path).size(), 1u);
  }
}

TEST(CheckpointSaver, DoesNotBeginWithoutRoom) {
  const ScratchFolder folder;
  Rig rig;
  // A size beyond any disk, in memory that is never touched.
  const int64_t rows = int64_t{1} << 50;
  const SavedTensor huge{"w",
                         {rows},
                         {{{0}, {rows}}},
                         Tensor::borrow(host_bytes(rig.exec.zeros({1})), {rows}, DType::kF32)};
  const std::string said =
      message_of<Error>([&] { save_checkpoint(folder / "c", {.step = 1}, {huge}, 0); });
  EXPECT_NE(said.find("takes 4194304.0 GiB"), std::string::npos) << said;
  EXPECT_NE(said.find("nothing was changed"), std::string::npos) << said;
  EXPECT_TRUE(fs::is_empty(folder / "c"));
}

TEST(CheckpointSaver, RemovesWhatEarlierSavesLeftUnfinished) {
  const ScratchFolder folder;
  Rig rig;
  for (const char* left : {".writing-step-000000009", ".removing-step-000000001"}) {
    fs::create_directories(folder / ("c/" + std::string(left)));
    put_file(folder / ("c/" + std::string(left) + "/rank-00000.h5"), "half of it");
  }
  save_checkpoint(folder / "c", {.step = 3}, {rows_of(rig.exec, 0, 1, 1)}, 0);
  const auto entries = fs::directory_iterator(folder / "c");
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

// Each of two ranks checks one file: damage found by one makes both fall back to a checkpoint that
// overwrites the data already read.
TEST(LoadNewest, GoesBackToAWholeCheckpointOnAllRanks) {
  const ScratchFolder folder;
  run_ranks(2, [&](ThreadComm& world, Exec& exec) {
    for (int64_t step = 1; step <= 3; ++step) {
      save_checkpoint(exec, world.hosts(), folder / "c", {.step = step},
                      {rows_of(exec, world.rank(), 2, static_cast<float>(step))}, 0);
    }
  });
  const auto damage = [&](int64_t step, int rank) {
    const std::string file = checkpoint_path(folder / "c", step) + "/" + rank_file(rank);
    std::string bytes = get_file(file);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    put_file(file, bytes);
  };
  damage(3, 1);
  fs::remove(checkpoint_path(folder / "c", 2) + "/" + rank_file(0));
  std::vector<std::string> said;
  const auto load = [&](ThreadComm& world, Exec& exec) {
    const Tensor all = exec.zeros({8, 5});
    const auto tensors = [&](const FoundCheckpoint&) -> std::vector<SavedTensor> {
      return {{"parameters/w", {8, 5}, {{{0, 0}, {8, 5}}}, all}};
    };
    const auto report = [&](const std::string& what) { said.push_back(what); };
    const auto found = load_newest(world.hosts(), {folder / "c", report, tensors});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->manifest.step, 1);
    for (int64_t i = 0; i < all.elements(); ++i) EXPECT_EQ(host<float>(all)[i], 1);
  };
  run_ranks(2, load);
  ASSERT_EQ(said.size(), 2u);  // by one rank
  EXPECT_NE(said[0].find("step-000000003/rank-00001.h5: is damaged"), std::string::npos) << said[0];
  EXPECT_NE(said[1].find("step-000000002/rank-00000.h5"), std::string::npos) << said[1];
  damage(1, 0);
  run_ranks(2, [&](ThreadComm& world, Exec& exec) { EXPECT_THROW(load(world, exec), Error); });
}

// The newest checkpoint may not be pruned in favour of a damaged one with a later step.
TEST(CheckpointFolder, SetsAsideWhatCannotBeUsed) {
  const ScratchFolder folder;
  Rig rig;
  const auto save = [&](int64_t step) {
    save_checkpoint(folder / "c", {.step = step},
                    {rows_of(rig.exec, 0, 1, static_cast<float>(step))}, 1);
  };
  save(8);
  put_file(checkpoint_path(folder / "c", 8) + "/rank-00000.h5", "nothing");
  save(6);
  EXPECT_EQ(published_checkpoints(folder / "c").size(), 2u);
  EXPECT_EQ(newest(folder / "c").manifest.step, 6);
  set_aside_after(folder / "c", 6);
  EXPECT_TRUE(fs::exists(folder / "c/damaged-step-000000008/rank-00000.h5"));
  EXPECT_EQ(published_checkpoints(folder / "c").size(), 1u);
  EXPECT_EQ(set_aside_all(folder / "c"), folder / "c.1");
  EXPECT_EQ(newest(folder / "c.1").manifest.step, 6);
  EXPECT_EQ(set_aside_all(folder / "c"), "");
}

// Copies and other files that a user puts into the folder must not change.
TEST(CheckpointFolder, KnowsItsOwnNamesAlone) {
  const ScratchFolder folder;
  Rig rig;
  const auto save = [&](int64_t step) {
    save_checkpoint(folder / "c", {.step = step}, {rows_of(rig.exec, 0, 1, 1)}, 1);
  };
  save(500);
  const std::vector<std::string> others = {
      "step-000000500-keep", "step-600",       "step-",           "step-000000700.bak",
      "step-+00000700",      ".writing-notes", ".removing-step-1"};
  for (const std::string& name : others) {
    fs::copy(checkpoint_path(folder / "c", 500), folder / ("c/" + name));
  }
  EXPECT_EQ(published_checkpoints(folder / "c"), std::vector{checkpoint_path(folder / "c", 500)});
  save(1234567890);
  save(2000000000);  // ten digits, as many as it takes
  EXPECT_EQ(newest(folder / "c").manifest.step, 2000000000);
  set_aside_after(folder / "c", 0);
  EXPECT_TRUE(published_checkpoints(folder / "c").empty());
  for (const std::string& name : others) {
    EXPECT_TRUE(fs::exists(folder / ("c/" + name + "/manifest.json"))) << name;
  }
}

}  // namespace
}  // namespace weft::test
