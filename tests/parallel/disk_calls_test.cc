// Every system call of a save fails once, one after the other: either the save is told as failed
// and the checkpoint before is whole, or the new one is.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "core/files/system_calls.h"
#include "core/report/run_record.h"
#include "tests/parallel/small_checkpoints.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;

class EveryCallOfASave : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(EveryCallOfASave, IsToldOrChangesNothing) {
  const auto call = static_cast<sys::Call>(std::get<0>(GetParam()));
  const int error = std::get<1>(GetParam());
  int told = 0, unharmed = 0;
  for (int64_t nth = 1;; ++nth) {
    const ScratchFolder folder;
    Rig rig(1);
    const auto save = [&](int64_t step) {
      save_checkpoint(folder / "c", {.step = step},
                      {rows_of(rig.exec, 0, 1, static_cast<float>(step))}, 1,
                      {{"tokenizer.json", "{}"}});
    };
    save(1);
    std::string said;
    int64_t failed = 0;
    {
      const sys::Failing failing({.call = call, .error = error, .nth = nth});
      try {
        save(2);
      } catch (const Error& e) {
        said = e.what();
      }
      failed = failing.failed();
    }
    if (failed == 0) break;
    const FoundCheckpoint found = newest(folder / "c");
    EXPECT_NO_THROW(verify_completely(found.path)) << nth;
    EXPECT_EQ(value_in(found), static_cast<float>(found.manifest.step)) << nth;
    if (said.empty()) {
      EXPECT_EQ(found.manifest.step, 2) << "call " << nth << " failed without a word";
      ++unharmed;
    } else {
      EXPECT_NE(said.find(std::strerror(error)), std::string::npos) << said;
      ++told;
    }
    save(3);  // the next one works, and nothing is left of the one that failed
    EXPECT_EQ(value_in(newest(folder / "c")), 3);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder / "c"), fs::directory_iterator()), 1);
  }
  // Nothing but a failed save removes a file.
  EXPECT_EQ(told + unharmed > 0, call != sys::Call::kRemove) << "no such call is made";
  if (error == EINTR) {
    EXPECT_EQ(told, 0);
  }
}

std::string name_of_case(const testing::TestParamInfo<std::tuple<int, int>>& info) {
  const auto call = static_cast<sys::Call>(std::get<0>(info.param));
  return fmt::format("{}_{}", sys::name_of(call), strerrorname_np(std::get<1>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(Disk, EveryCallOfASave,
                         testing::Combine(testing::Range(0, static_cast<int>(sys::Call::kCount)),
                                          testing::Values(EIO, EINTR)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(OtherErrors, EveryCallOfASave,
                         testing::Values(std::tuple(static_cast<int>(sys::Call::kWrite), ENOSPC),
                                         std::tuple(static_cast<int>(sys::Call::kClose), ENOSPC),
                                         std::tuple(static_cast<int>(sys::Call::kRename), EROFS),
                                         std::tuple(static_cast<int>(sys::Call::kOpen), ENOMEM)),
                         name_of_case);

TEST(CheckpointPlace, TheNameOfAnotherStepIsNoLongerTakenForIt) {
  const ScratchFolder folder;
  Rig rig;
  for (const int64_t step : {20, 40}) {
    save_checkpoint(folder / "c", {.step = step},
                    {rows_of(rig.exec, 0, 1, static_cast<float>(step))}, 0);
  }
  fs::remove_all(checkpoint_path(folder / "c", 40));
  fs::copy(checkpoint_path(folder / "c", 20), checkpoint_path(folder / "c", 40),
           fs::copy_options::recursive);
  const std::string copy = checkpoint_path(folder / "c", 40);
  for (const std::string& path : {copy, copy + "/"}) {
    const std::string said = message_of<Damage>([&] { verify_completely(path); });
    EXPECT_NE(said.find("holds step 20"), std::string::npos) << said;
  }
  EXPECT_EQ(newest(folder / "c").manifest.step, 20);
  fs::rename(copy, folder / "c/best");  // a name of the user's own says nothing of a step
  EXPECT_EQ(verify_completely(folder / "c/best").manifest.step, 20);
}

TEST(CheckpointPlace, ACheckpointOfAnotherRunIsNoneOfThisOne) {
  const ScratchFolder folder;
  Rig rig;
  for (const std::string run : {"one", "other"}) {
    write_run_record(folder / run, {.run = run});
    save_checkpoint(folder / (run + "/checkpoints"), {.run = run, .step = run == "one" ? 4 : 6},
                    {rows_of(rig.exec, 0, 1, 1)}, 0);
  }
  const std::string copy = checkpoint_path(folder / "one/checkpoints", 6);
  fs::copy(checkpoint_path(folder / "other/checkpoints", 6), copy, fs::copy_options::recursive);
  const std::string said = message_of<Damage>([&] { read_checkpoint(copy); });
  EXPECT_NE(said.find("is of run other, and the folder belongs to run one"), std::string::npos)
      << said;
  EXPECT_EQ(newest(folder / "one/checkpoints").manifest.step, 4);
  fs::remove(folder / "one/run.json");  // a folder without it takes any
  EXPECT_EQ(newest(folder / "one/checkpoints").manifest.step, 6);
}

}  // namespace
}  // namespace weft::test
