// Files on disks that fail at any call: what is told, and that nothing half-written gets a name.
#include "core/files/system_calls.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/base/error.h"
#include "core/files/hdf5.h"
#include "core/files/new_file.h"
#include "core/files/regular_file.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;

int files_in(const std::string& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(SystemCalls, AFileIsThereWholeOrNotAtAllWhateverCallFails) {
  using sys::Call;
  for (const Call call : {Call::kOpen, Call::kWrite, Call::kSync, Call::kClose, Call::kRename}) {
    for (const int error : {EIO, ENOSPC, EROFS, EINTR, ENOMEM}) {
      if (call == Call::kClose && error == EINTR) continue;  // the system has closed it
      const ScratchFolder folder;
      const std::string path = folder / "file";
      const sys::Failing failing({.call = call, .error = error, .lasting = true});
      const std::string said = message_of<Error>([&] { write_checked(path, "all of it"); });
      EXPECT_NE(said.find(path), std::string::npos) << sys::name_of(call) << ": " << said;
      EXPECT_NE(said.find(std::strerror(error)), std::string::npos) << said;
      EXPECT_FALSE(fs::exists(path)) << sys::name_of(call);
      EXPECT_EQ(files_in(folder.path()), 0) << sys::name_of(call);
    }
  }
}

TEST(SystemCalls, OneInterruptionIsNoFailure) {
  using sys::Call;
  const ScratchFolder folder;
  for (const Call call : {Call::kOpen, Call::kWrite, Call::kRead, Call::kStat, Call::kSync,
                          Call::kClose, Call::kRename}) {
    const sys::Failing failing({.call = call, .error = EINTR});
    write_checked(folder / "file", "text");
    EXPECT_EQ(failing.failed(), 1) << sys::name_of(call);
    EXPECT_EQ(content_of(folder / "file"), "text");
  }
}

TEST(SystemCalls, CountsTheCallsOnOnePathAlone) {
  const ScratchFolder folder;
  const sys::Failing failing({.call = sys::Call::kSync, .nth = 2, .path = "second"});
  write_checked(folder / "first", "1");
  write_checked(folder / "second", "2");
  write_checked(folder / "first", "3");
  EXPECT_EQ(failing.failed(), 0);
  EXPECT_THROW(write_checked(folder / "second", "4"), Error);
  EXPECT_EQ(content_of(folder / "second"), "2");
  write_checked(folder / "second", "5");
}

// HDF5 lays files out in memory; where its bytes are is asked of the system, whose answer may be an
// error. Taken for the end of the data, it would lose them without a word.
TEST(SystemCalls, AnHdf5FileIsNeverLeftWithoutTheBytesOfTheLibrary) {
  using sys::Call;
  const std::vector<Hdf5Dataset> datasets = {{"a/b", {3, 5}}, {"c", {70000}}};
  for (const Call call : {Call::kSeek, Call::kRead, Call::kWrite, Call::kTruncate, Call::kClose}) {
    int told = 0;
    for (int64_t nth = 1;; ++nth) {
      const ScratchFolder folder;
      const sys::Failing failing({.call = call, .nth = nth});
      std::string said;
      std::vector<int64_t> positions;
      try {
        positions = create_hdf5(folder / "data.h5", datasets);
      } catch (const Error& e) {
        said = e.what();
      }
      if (failing.failed() == 0) break;
      if (!said.empty()) {
        EXPECT_NE(said.find(std::strerror(EIO)), std::string::npos) << said;
        ++told;
        continue;
      }
      // Not told: then it was a call that changes nothing, as closing the file in memory.
      std::vector<Hdf5Expected> expected;
      for (size_t i = 0; i < datasets.size(); ++i) expected.push_back({datasets[i], positions[i]});
      EXPECT_NO_THROW(check_hdf5(folder / "data.h5", expected)) << sys::name_of(call) << nth;
    }
    EXPECT_GE(told, 1) << sys::name_of(call);
  }
}

TEST(SystemCalls, OrdersInTextAreReadOrRefused) {
  const sys::Failure one = sys::failure_from("sync:ENOSPC:3+:manifest");
  EXPECT_EQ(one.call, sys::Call::kSync);
  EXPECT_EQ(one.error, ENOSPC);
  EXPECT_EQ(one.nth, 3);
  EXPECT_TRUE(one.lasting);
  EXPECT_EQ(one.path, "manifest");
  EXPECT_EQ(sys::failure_from("write").error, EIO);
  for (const char* bad : {"", "wrote:EIO", "write:EBAD", "write:EIO:0", "write:EIO:x"}) {
    EXPECT_THROW(sys::failure_from(bad), ConfigError) << bad;
  }
  const std::string said = message_of<ConfigError>([] { sys::failure_from("wirte:EIO"); });
  EXPECT_NE(said.find("write"), std::string::npos) << said;
}

}  // namespace
}  // namespace weft::test
