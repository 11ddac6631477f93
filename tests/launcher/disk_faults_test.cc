// Disks that are full, small, read-only or broken: training warns, and no checkpoint is lost.
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/data/indexed_dataset.h"
#include "launcher/checkpoint/checkpoint_lookup.h"
#include "launcher/data/data_build.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "tests/support/program.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;

class DiskFaults : public testing::Test {
 protected:
  DiskFaults() {
    IndexedDatasetWriter writer(folder / "corpus", TokenType::kU16);
    std::vector<int32_t> tokens(4000);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 89);
    writer.add_document(tokens);
    writer.finish();
  }

  std::vector<std::string> train(const std::string& run,
                                 const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {"train",
                                    in_project("configs/tiny.toml"),
                                    "data.train=[\"" + (folder / "corpus") + "\"]",
                                    "run.dir=" + run,
                                    "train.steps=4",
                                    "train.sequence=16",
                                    "train.global_batch=2",
                                    "train.micro_batch=1",
                                    "run.checkpoint_every=2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  static void expect_whole(const std::string& run, int64_t step) {
    const FoundCheckpoint found = open_checkpoint(run);
    EXPECT_EQ(found.manifest.step, step);
    EXPECT_NO_THROW(verify_completely(found.path));
  }

  const ScratchFolder folder;
};

// A disk of its own: memory of a given size.
class SmallDisk {
 public:
  SmallDisk(const std::string& path, const std::string& options) : path_(path) {
    fs::create_directories(path);
    mounted_ = mount("tmpfs", path.c_str(), "tmpfs", 0, options.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  bool resize(const std::string& options) const {
    return mount(nullptr, path_.c_str(), nullptr, MS_REMOUNT, options.c_str()) == 0;
  }
  bool read_only() const {
    return mount(nullptr, path_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0;
  }

 private:
  std::string path_;
  bool mounted_ = false;
};

TEST_F(DiskFaults, ADiskTooSmallForOneCheckpointIsRefusedAtTheStart) {
  const SmallDisk disk(folder / "disk", "size=300k");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small tmpfs needs root";
  const Outcome o = run_weft(train(folder / "disk/run"));
  EXPECT_EQ(o.code, 2) << o.out << o.err;
  EXPECT_NE(o.err.find("a checkpoint of this run takes"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("the disk has"), std::string::npos) << o.err;
}

TEST_F(DiskFaults, ADiskThatFillsUpIsToldAndTheCheckpointBeforeStays) {
  const SmallDisk disk(folder / "disk", "size=64m");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small tmpfs needs root";
  const std::string run = folder / "disk/run";
  ASSERT_EQ(run_weft(train(run)).code, 0);
  Program program(train(run, {"train.steps=1000000"}));
  ASSERT_TRUE(program.wait_for("5/1000000  loss"));
  {
    std::ofstream filler(folder / "disk/filler", std::ios::binary);
    const std::string block(1 << 20, 'x');
    while (room_for(run) > (12 << 20) && filler << block << std::flush) continue;
  }
  ASSERT_TRUE(program.wait_for("not saved  step"));
  program.signal(SIGTERM);
  const Outcome full = program.wait();
  EXPECT_EQ(full.code, 3) << full.out << full.err;
  EXPECT_NE(full.out.find("a checkpoint takes 19.2 MiB, the disk has "), std::string::npos)
      << full.out;
  EXPECT_NE(full.err.find("could not be saved"), std::string::npos) << full.err;
  fs::remove(folder / "disk/filler");
  const int64_t kept = open_checkpoint(run).manifest.step;
  EXPECT_GE(kept, 4);
  expect_whole(run, kept);
  const Outcome again = run_weft(train(run, {fmt::format("train.steps={}", kept + 2)}));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find(fmt::format("after step {}", kept)), std::string::npos) << again.out;
  expect_whole(run, kept + 2);
}

// Takes all the room there is, to the last byte.
void fill(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  const std::string block(1 << 16, 'x');
  for (size_t size = block.size(); size > 0; size /= 2) {
    while (write(file, block.data(), size) > 0) continue;
  }
  close(file);
}

TEST_F(DiskFaults, TrainingGoesOnWithoutMetricsWhileADiskIsFull) {
  const SmallDisk disk(folder / "disk", "size=128m");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small tmpfs needs root";
  const std::string run = folder / "disk/run";
  Program program(train(run, {"train.steps=1000000", "run.keep=1", "train.log_every=1"}));
  ASSERT_TRUE(program.wait_for("5/1000000  loss"));
  // Again and again: a save that fails gives back what it had taken.
  const auto while_full = [&](const std::function<bool()>& fact) {
    return program.wait_until([&] {
      fill(folder / "disk/filler");
      return fact();
    });
  };
  const auto said = [&](const std::string& text) {
    const std::string out = program.out_so_far();
    int64_t times = 0;
    for (size_t at = 0; (at = out.find(text, at)) != std::string::npos; at += text.size()) ++times;
    return times;
  };
  // The failure is of metrics.jsonl, or of tensorboard/ if that needed a page first.
  const char* const fails = "cannot write: No space left on device; training goes on";
  const char* const works = "metrics.jsonl is written again; steps ";
  ASSERT_TRUE(while_full([&] { return said(fails) > said(works) && said("not saved  step") > 0; }));
  // Ten steps later it still trains, and has not said it again.
  const int64_t before = said("\nstep ");
  ASSERT_TRUE(while_full([&] { return said("\nstep ") > before + 10; }));
  EXPECT_LE(said(fails), said(works) + 1);

  const int64_t kept = open_checkpoint(run).manifest.step;
  fs::remove(folder / "disk/filler");
  const int64_t known = said(works);
  ASSERT_TRUE(
      program.wait_until([&] { return said(works) > known || said(works) == said(fails); }));
  ASSERT_TRUE(program.wait_until([&] { return open_checkpoint(run).manifest.step > kept; }));
  program.signal(SIGTERM);
  const Outcome o = program.wait();
  EXPECT_EQ(o.code, 75) << o.err;

  const int64_t last = open_checkpoint(run).manifest.step;
  expect_whole(run, last);
  std::ifstream metrics(run + "/metrics.jsonl");
  int64_t lines = 0, step = 0;
  for (std::string line; std::getline(metrics, line); ++lines) {
    const int64_t now = nlohmann::json::parse(line)["step"];  // throws for half a line
    EXPECT_GT(now, step);
    step = now;
  }
  EXPECT_EQ(step, last);
  EXPECT_LT(lines, last);
}

// A dataset that the disk cannot hold: a clear error, and on a larger one it goes on to the same
// bytes.
TEST_F(DiskFaults, BuildingADatasetGoesOnWhenTheDiskHasBecomeLarger) {
  const SmallDisk disk(folder / "disk", "size=1m");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small tmpfs needs root";
  std::string text;
  for (int i = 0; i < 60000; ++i) text += fmt::format("line {} of a text\n", i);
  put_file(folder / "text", text);
  DataBuild build;
  build.from.inputs = {folder / "text"};
  build.from.document = TextInputs::Document::kLine;
  build.batch_bytes = 1 << 14;
  build.keep_bytes = 1 << 16;
  build.out = folder / "whole";
  build_dataset(build);
  build.out = folder / "disk/x";
  const std::string why = message_of<Error>([&] { build_dataset(build); });
  EXPECT_NE(why.find("disk/x.building: No space left on device; started again, it goes on"),
            std::string::npos)
      << why;
  EXPECT_FALSE(fs::exists(build.out + ".bin"));
  const Outcome o = run_weft({"data", "build", "--out", folder / "disk/y", folder / "text"});
  EXPECT_EQ(o.code, 3) << o.out;
  EXPECT_NE(o.err.find("No space left on device"), std::string::npos) << o.err;

  ASSERT_TRUE(disk.resize("size=16m"));
  EXPECT_GT(build_dataset(build).resumed, 0);
  for (const char* ending : {".bin", ".idx", ".tokenizer.json"}) {
    EXPECT_TRUE(get_file(build.out + ending) == get_file((folder / "whole") + ending)) << ending;
  }
}

TEST_F(DiskFaults, ALimitOfFileSizesIsToldAndTheCheckpointBeforeStays) {
  for (const char* background : {"true", "false"}) {
    const std::string run = folder / ("run-" + std::string(background));
    const std::string how = "run.background_save=" + std::string(background);
    ASSERT_EQ(run_weft(train(run, {how})).code, 0);
    std::string command = "ulimit -f 200; trap '' XFSZ; exec \"$0\" \"$@\"";
    std::vector<std::string> arguments = {"-c", command, weft_program()};
    for (const std::string& a : train(run, {how, "train.steps=8"})) arguments.push_back(a);
    const Outcome o = Program("/bin/bash", arguments).wait();
    EXPECT_EQ(o.code, 3) << o.out << o.err;
    EXPECT_NE(o.out.find("not saved  step 6"), std::string::npos) << o.out;
    EXPECT_NE(o.out.find("ulimit -f"), std::string::npos) << o.out;
    EXPECT_NE(o.err.find("step 8 could not be saved"), std::string::npos) << o.err;
    expect_whole(run, 4);
    EXPECT_EQ(run_weft(train(run, {how, "train.steps=8"})).code, 0);
    expect_whole(run, 8);
  }
}

TEST_F(DiskFaults, AReadOnlyFolderIsRefusedAtTheStart) {
  const SmallDisk disk(folder / "disk", "size=64m");
  const std::string run = folder / "disk/run";
  fs::create_directories(run);
  const bool made =
      disk.mounted() ? disk.read_only() : geteuid() != 0 && chmod(run.c_str(), 0500) == 0;
  if (!made) GTEST_SKIP() << "as root without the right to mount, every folder can be written";
  const Outcome o = run_weft(train(run));
  EXPECT_EQ(o.code, 2) << o.out << o.err;
  EXPECT_NE(o.err.find("run.dir = " + run), std::string::npos) << o.err;
  if (!disk.mounted()) chmod(run.c_str(), 0700);
}

TEST_F(DiskFaults, AFolderThatVanishesWhileTrainingIsMadeAgain) {
  // Halted before step 7: the save of step 4, in the foreground, is over.
  Program program(train(folder / "run", {"train.steps=8", "run.checkpoint_every=4",
                                         "run.background_save=false", "--fault=0:7:stopped"}));
  ASSERT_TRUE(program.wait_for_halt());
  expect_whole(folder / "run", 4);
  fs::remove_all(folder / "run/checkpoints");
  program.signal(SIGCONT);
  const Outcome o = program.wait();
  EXPECT_EQ(o.code, 0) << o.err;
  expect_whole(folder / "run", 8);
}

TEST_F(DiskFaults, MetricsTellHowLongSavingHeldUpTheRun) {
  ASSERT_EQ(run_weft(train(folder / "run")).code, 0);
  std::ifstream metrics(folder / "run/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    const auto step = nlohmann::json::parse(line);
    EXPECT_EQ(step.contains("save_ms"), step["step"] == 3) << line;  // saved after step 2
  }
}

TEST_F(DiskFaults, StartingAnewKeepsTheCheckpointsOfBefore) {
  const std::string run = folder / "run";
  ASSERT_EQ(run_weft(train(run, {"train.steps=6"})).code, 0);
  const Outcome o = run_weft(train(run, {"run.resume=never", "run.keep=1"}));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("run/checkpoints.1"), std::string::npos) << o.out;
  expect_whole(run, 4);
  EXPECT_EQ(open_checkpoint(run + "/checkpoints.1").manifest.step, 6);
}

}  // namespace
}  // namespace weft::test
