// Losing power at any moment of a save leaves a loadable checkpoint and no incomplete folder with a
// step's name. The disk afterwards is derived from records: the last synced content of files and
// folders is certain, later changes may be present or not.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "core/files/new_file.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_saver.h"
#include "parallel/checkpoint/save_moment.h"
#include "parallel/comm/thread_comm.h"
#include "tests/parallel/small_checkpoints.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;
using Inode = uint64_t;
using Names = std::map<std::string, Inode>;

Inode inode_of(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) throw Error("{}: cannot be looked at", path);
  return info.st_ino;
}

// In a shared folder (/tmp) files of other programs may vanish during the listing.
Names names_in(const std::string& folder) {
  Names names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    struct stat info {};
    if (lstat(entry.path().c_str(), &info) == 0)
      names[entry.path().filename().string()] = info.st_ino;
  }
  return names;
}

// Records synced content by inode, in files that outlive the process. Inodes that were noted stay
// open, so that no other file gets their number.
class SyncRecord {
 public:
  explicit SyncRecord(std::string folder) : folder_(std::move(folder)) {
    fs::create_directories(folder_);
    active_ = this;
  }
  ~SyncRecord() {
    active_ = nullptr;
    for (const int fd : kept_) close(fd);
  }
  SyncRecord(const SyncRecord&) = delete;
  SyncRecord& operator=(const SyncRecord&) = delete;
  static SyncRecord* active() { return active_; }

  // Power is lost at the sync after this many.
  void end_after(int syncs) { left_ = syncs; }

  void note(int fd) {
    const std::lock_guard lock(mutex_);
    if (left_-- == 0) std::raise(SIGKILL);
    struct stat info {};
    fstat(fd, &info);
    const std::string open = fmt::format("/proc/self/fd/{}", fd);
    std::string text;
    if (S_ISDIR(info.st_mode)) {
      for (const auto& [name, inode] : names_in(open + "/")) {
        text += fmt::format("{} {}\n", inode, name);
      }
    } else {
      text = get_file(open);
    }
    const std::string path =
        fmt::format("{}/{}-{}", folder_, S_ISDIR(info.st_mode) ? "folder" : "file", info.st_ino);
    put_file(path + ".half", text);  // the process may be killed now
    fs::rename(path + ".half", path);
    kept_.push_back(dup(fd));
  }

  // The bytes of a file when it was last synced; none: never.
  std::string bytes_of(Inode inode) const {
    return get_file(fmt::format("{}/file-{}", folder_, inode));
  }
  bool has_folder(Inode inode) const {
    return fs::exists(fmt::format("{}/folder-{}", folder_, inode));
  }
  Names names_of(Inode inode) const {
    Names names;
    std::ifstream lines(fmt::format("{}/folder-{}", folder_, inode));
    Inode there = 0;
    for (std::string name; lines >> there >> name;) names[name] = there;
    return names;
  }

 private:
  static inline std::atomic<SyncRecord*> active_ = nullptr;
  const std::string folder_;
  std::mutex mutex_;
  std::vector<int> kept_;
  int left_ = -1;
};

std::atomic<bool> exchanges_names = true;

}  // namespace
}  // namespace weft::test

extern "C" {
int __real_fsync(int fd);
int __real_renameat2(int from_folder, const char* from, int to_folder, const char* to,
                     unsigned flags);

int __wrap_fsync(int fd) {
  weft::test::SyncRecord* const record = weft::test::SyncRecord::active();
  if (record == nullptr) return __real_fsync(fd);
  record->note(fd);
  return 0;
}

int __wrap_renameat2(int from_folder, const char* from, int to_folder, const char* to,
                     unsigned flags) {
  if (weft::test::exchanges_names) {
    return __real_renameat2(from_folder, from, to_folder, to, flags);
  }
  errno = EINVAL;
  return -1;
}
}

namespace weft::test {
namespace {

// Possible disks after the power is back: each folder and file has its last synced content, or that
// of the moment of the loss.
class DiskAfterwards {
 public:
  DiskAfterwards(const SyncRecord& record, const std::string& root)
      : record_(record), root_(inode_of(root)) {
    look(root);
    for (auto& [inode, node] : folders_) {
      if (node.now != node.synced) doubtful_.push_back(inode);
    }
  }

  // All of them: each of the doubtful folders in one of two states, and the files in one of two.
  // Paths -> bytes; folders end with a slash.
  using Disk = std::map<std::string, std::string>;
  std::set<Disk> all() const {
    std::set<Disk> disks;
    for (int which = 0; which < 2 << doubtful_.size(); ++which) {
      std::set<Inode> now;
      for (size_t i = 0; i < doubtful_.size(); ++i) {
        if ((which >> (i + 1) & 1) != 0) now.insert(doubtful_[i]);
      }
      Disk disk;
      add_folder(root_, "", now, /*files=*/(which & 1) != 0, disk);
      disks.insert(std::move(disk));
    }
    return disks;
  }

 private:
  struct Folder {
    Names synced, now;
  };

  void look(const std::string& path) {
    Folder& folder = folders_[inode_of(path)];
    folder.now = names_in(path);
    for (const auto& [name, inode] : folder.now) {
      const std::string below = path + "/" + name;
      if (fs::is_directory(below)) {
        look(below);
      } else {
        files_[inode] = get_file(below);
      }
    }
    note_synced(inode_of(path));
  }

  // Includes removed folders: they reappear where their removal was not synced.
  void note_synced(Inode inode) {
    Folder& folder = folders_[inode];
    folder.synced = record_.names_of(inode);
    for (const auto& [name, below] : folder.synced) {
      if (record_.has_folder(below) && !folders_.contains(below)) note_synced(below);
    }
  }

  // `now`: folders with the content of the moment of the loss.
  void add_folder(Inode inode, const std::string& to, const std::set<Inode>& now, bool files,
                  Disk& disk) const {
    const Folder& folder = folders_.at(inode);
    for (const auto& [name, below] : now.contains(inode) ? folder.now : folder.synced) {
      const auto there = files_.find(below);
      if (folders_.contains(below)) {
        disk[to + name + "/"] = "";
        add_folder(below, to + name + "/", now, files, disk);
      } else {
        disk[to + name] = files && there != files_.end() ? there->second : record_.bytes_of(below);
      }
    }
  }

  const SyncRecord& record_;
  const Inode root_;
  std::map<Inode, Folder> folders_;
  std::map<Inode, std::string> files_;  // as they are now
  std::vector<Inode> doubtful_;
};

// Called by every rank at the moments that it reaches.
using AtMoment = std::function<void(int rank, SaveMoment moment)>;

void save(
    const std::string& folder, int64_t step, float value, int64_t keep,
    const AtMoment& at = [](int, SaveMoment) {}) {
  run_ranks(2, [&](ThreadComm& world, Exec& exec) {
    const SaveHook hook = [&](int64_t, SaveMoment moment, const SaveProgress&) {
      at(world.rank(), moment);
    };
    CheckpointSaver saver(exec, world.hosts(),
                          {.folder = folder,
                           .keep = keep,
                           .others = {{"words", fmt::format("of step {}", step)}},
                           .at = hook});
    auto result = saver.begin({.step = step}, {rows_of(exec, world.rank(), 2, value)});
    if (!result) result = saver.finish();
    EXPECT_EQ(result->failure, "");
  });
}

void make(const DiskAfterwards::Disk& disk, const std::string& to) {
  for (const auto& [path, bytes] : disk) {
    if (path.ends_with("/")) {
      fs::create_directories(to + "/" + path);
    } else {
      put_file(to + "/" + path, bytes);
    }
  }
}

// A moment of a save: a named one, or the one before a given number of syncs.
struct Moment {
  std::optional<SaveMoment> name;
  int syncs = -1;
  bool published() const { return name && *name >= SaveMoment::kPublished; }
};
std::string text_of(const Moment& m) {
  return m.name ? std::string(name_of(*m.name)) : fmt::format("after {} syncs", m.syncs);
}

// True if the saving process was killed at that moment, which not every save has.
bool killed_at(const Moment& m, SyncRecord& record,
               const std::function<void(const AtMoment&)>& saving) {
  const bool by_every_rank = m.name == SaveMoment::kWritten || m.name == SaveMoment::kSynced;
  const pid_t child = fork();
  if (child == 0) {
    record.end_after(m.syncs);
    saving([&](int rank, SaveMoment moment) {
      if (m.name == moment && rank == (by_every_rank ? 1 : 0)) std::raise(SIGKILL);
    });
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

struct Saves {
  const char* name;
  std::vector<int64_t> steps;  // of values 1, 2, ...; power is lost in the last one
  bool exchanges;
};
void PrintTo(const Saves& saves, std::ostream* out) { *out << saves.name; }

class PowerLoss : public testing::TestWithParam<Saves> {
 protected:
  PowerLoss() { exchanges_names = GetParam().exchanges; }
  ~PowerLoss() override { exchanges_names = true; }

  // False when the last save has no such moment.
  bool lose_power(const Moment& moment) {
    SCOPED_TRACE(text_of(moment));
    const ScratchFolder folder;
    fs::create_directory(folder / "disk");
    SyncRecord record(folder / "record");
    sync_path(folder / "disk");
    const auto save_one = [&](size_t i, int64_t keep, const AtMoment& at) {
      save(folder / "disk/of/a/run", saves.steps[i], static_cast<float>(i + 1), keep, at);
    };
    const size_t last = saves.steps.size() - 1;
    for (size_t i = 0; i < last; ++i) save_one(i, 0, [](int, SaveMoment) {});
    const auto save_last = [&](const AtMoment& at) { save_one(last, 1, at); };
    if (!killed_at(moment, record, save_last)) return false;
    for (const DiskAfterwards::Disk& disk : DiskAfterwards(record, folder / "disk").all()) {
      if (!seen_.emplace(moment.published(), disk).second) continue;
      const std::string after = folder / fmt::format("after-{}", seen_.size());
      make(disk, after);
      expect_usable(after + "/of/a/run", moment.published());
    }
    return true;
  }

  void expect_usable(const std::string& folder, bool published) {
    std::vector<std::string> there = published_checkpoints(folder);
    const auto last = static_cast<float>(saves.steps.size());
    ASSERT_GE(there.size(), saves.steps.size() > 1 || published ? 1u : 0u);
    for (const std::string& path : there) {
      const FoundCheckpoint found = verify_completely(path);
      const float value = value_in(found);
      EXPECT_EQ(others_of(found).at("words"), fmt::format("of step {}", found.manifest.step));
      ASSERT_EQ(found.manifest.step, saves.steps.at(static_cast<size_t>(value) - 1));
      EXPECT_GE(value, path != there.back() ? 1 : published ? last : last - 1);
    }
    save(folder, 9, 9, 1);
    EXPECT_EQ(value_in(newest(folder)), 9);
    EXPECT_EQ(names_in(folder).size(), 1u) << "what was left unfinished, and older ones, are gone";
  }

  const Saves saves = GetParam();
  std::set<std::pair<bool, DiskAfterwards::Disk>> seen_;
};

TEST_P(PowerLoss, LeavesWholeCheckpointsAtAnyMoment) {
  int named = 0, syncs = 0;
  for (int m = 0; m < static_cast<int>(SaveMoment::kCount); ++m) {
    named += lose_power({.name = static_cast<SaveMoment>(m)});
  }
  while (lose_power({.name = {}, .syncs = syncs})) ++syncs;
  const bool prunes = saves.steps.size() > 1, replaces = saves.steps.size() > 2;
  EXPECT_EQ(named, 7 + prunes + (replaces && !saves.exchanges));
  EXPECT_GE(syncs, 12);  // two ranks' files, their descriptions, words, index, manifest, names
  EXPECT_GE(seen_.size(), 8u) << "disks";
}

INSTANTIATE_TEST_SUITE_P(All, PowerLoss,
                         testing::Values(Saves{"First", {4}, true}, Saves{"Next", {4, 6}, true},
                                         Saves{"TheSameAgain", {4, 6, 6}, true},
                                         Saves{"TheSameAgainWithoutExchange", {4, 6, 6}, false}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weft::test
