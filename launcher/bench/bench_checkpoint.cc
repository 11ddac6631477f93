#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/base/rng.h"
#include "core/host_access.h"
#include "launcher/app/commands.h"
#include "launcher/app/measure.h"
#include "launcher/app/progress.h"
#include "launcher/app/runtime.h"
#include "parallel/checkpoint/boxes.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/comm/self_comm.h"

extern char** environ;

namespace weft {
namespace {

namespace fs = std::filesystem;

struct BenchCheckpointOptions {
  std::string dir = ".", json;
  int64_t bytes = int64_t{1} << 30;
  int pairs = 15;
  bool check = false;
};

constexpr double kLeast = 0.7;  // share of dd's rate that --check requires

// A temporary folder inside `dir`.
struct BenchFolder {
  explicit BenchFolder(const std::string& dir)
      : path(fmt::format("{}/weft-bench-{}", dir, getpid())) {
    std::error_code failure;
    fs::create_directories(path, failure);
    if (failure) throw ConfigError("{}: cannot be written: {}", dir, failure.message());
  }
  ~BenchFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  BenchFolder(const BenchFolder&) = delete;
  BenchFolder& operator=(const BenchFolder&) = delete;
  const std::string path;
};

void dd(const std::vector<std::string>& arguments) {
  std::vector<char*> argv = {const_cast<char*>("dd")};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  const int failed = posix_spawnp(&child, "dd", &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  int status = 1;
  if (failed == 0) waitpid(child, &status, 0);
  if (failed != 0 || status != 0) throw Error("dd {} failed", arguments.back());
}

// The bytes of the tensors, for dd to copy from memory as our writer does.
class BytesInMemory {
 public:
  explicit BytesInMemory(const std::vector<SavedTensor>& tensors)
      : fd_(memfd_create("weft-bench", MFD_CLOEXEC)) {
    for (const SavedTensor& t : tensors) {
      for (int64_t done = 0; done < t.local.bytes();) {
        const ssize_t count = write(fd_, static_cast<const char*>(host_bytes(t.local)) + done,
                                    static_cast<size_t>(t.local.bytes() - done));
        if (count <= 0)
          throw Error("no memory for the bytes that dd copies: {}", std::strerror(errno));
        done += count;
      }
    }
  }
  ~BytesInMemory() { close(fd_); }
  BytesInMemory(const BytesInMemory&) = delete;
  BytesInMemory& operator=(const BytesInMemory&) = delete;
  std::string path() const { return fmt::format("/proc/{}/fd/{}", getpid(), fd_); }

 private:
  int fd_;
};

// Drops the file from the page cache.
void forget(const std::string& file) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  close(fd);
}

// Sizes as models have them: a few large tensors and many small ones.
std::vector<SavedTensor> some_tensors(Exec& exec, int64_t bytes) {
  std::vector<SavedTensor> tensors;
  for (int64_t left = bytes / 4; left > 0;) {
    const auto n = static_cast<int64_t>(tensors.size());
    const int64_t elements = std::min(left, n % 2 == 0 ? (int64_t{8} << 20) : 1000 + 7 * n);
    const Tensor t = exec.empty({elements});
    const RandomStream random(1, fmt::format("bench {}", n));  // incompressible
    for (int64_t i = 0; i < elements; ++i) {
      host<float>(t)[i] =
          std::bit_cast<float>(static_cast<uint32_t>(random.bits(static_cast<uint64_t>(i))));
    }
    tensors.push_back({fmt::format("parameters/{:05}", n), t.shape(), {whole_of(t.shape())}, t});
    left -= elements;
  }
  return tensors;
}

// Processor time of this process, or of its finished children.
double processor_seconds(int who) {
  struct rusage used {};
  getrusage(who, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// Seconds per run of ours and of dd, and total processor time.
struct Times {
  std::vector<double> ours, dds;
  double our_processor = 0, dd_processor = 0;
};

nlohmann::json rates(const char* what, int64_t bytes, const Times& times) {
  const auto& [ours, dds, our_processor, dd_processor] = times;
  std::vector<double> ratio;
  for (size_t i = 0; i + 1 < ours.size(); i += 2) {
    ratio.push_back((dds[i] + dds[i + 1]) / (ours[i] + ours[i + 1]));
  }
  const double size = static_cast<double>(bytes) / 1e9;
  const Quartiles q = quartiles(ratio), a = quartiles(ours), b = quartiles(dds);
  const double all = size * static_cast<double>(ours.size());
  fmt::print(
      "{:5}  {:.2f} GB/s, dd {:.2f} GB/s: {:.0f} % ({:.0f} "
      "to {:.0f}); processor time {:.2f} s/GB, dd {:.2f}\n",
      what, size / a.median, size / b.median, 100 * q.median, 100 * q.q1, 100 * q.q3,
      our_processor / all, dd_processor / all);
  return {{"gb_per_s", size / a.median},
          {"dd_gb_per_s", size / b.median},
          {"ratio", to_json(q)},
          {"processor_s_per_gb", our_processor / all},
          {"dd_processor_s_per_gb", dd_processor / all},
          {"ms", milliseconds(a)},
          {"dd_ms", milliseconds(b)}};
}

void run(const BenchCheckpointOptions& o) {
  Runtime runtime(0);
  SelfHosts self;
  const BenchFolder folder(o.dir);
  const std::vector<SavedTensor> tensors = some_tensors(runtime.exec(), o.bytes);
  const std::string plain = folder.path + "/dd", checkpoints = folder.path + "/checkpoints";
  const std::string file = checkpoint_path(checkpoints, 1) + "/" + rank_file(0);
  const BytesInMemory bytes(tensors);
  const auto save = [&] { save_checkpoint(checkpoints, {.step = 1}, tensors, 1); };
  const auto dd_write = [&] { dd({"if=" + bytes.path(), "bs=1M", "conv=fsync", "of=" + plain}); };
  const auto load = [&] {
    load_newest(self, {checkpoints, [](const std::string& what) { throw Error("{}", what); },
                       [&](const FoundCheckpoint&) { return tensors; }});
  };
  const auto dd_read = [&] { dd({"bs=1M", "of=/dev/null", "if=" + file}); };
  const auto clear = [&] {
    fs::remove_all(checkpoints);
    fs::remove(plain);
    sync();
  };
  const auto pairs = [&](auto&& ours, auto&& theirs, auto&& prepare) {
    Times times;
    for (int i = 0; i < o.pairs; ++i) {
      for (const bool mine : {true, false, false, true}) {
        prepare();
        const int who = mine ? RUSAGE_SELF : RUSAGE_CHILDREN;
        const double before = processor_seconds(who);
        if (mine) {
          times.ours.push_back(seconds_of(ours));
        } else {
          times.dds.push_back(seconds_of(theirs));
        }
        (mine ? times.our_processor : times.dd_processor) += processor_seconds(who) - before;
      }
    }
    return times;
  };
  fmt::print("{} in {}, memory to disk and back, {} x A-B-B-A\n", format_bytes(o.bytes), o.dir,
             o.pairs);
  const Times writes = pairs(save, dd_write, clear);
  nlohmann::json result = {{"bench", "checkpoint"}, {"bytes", o.bytes}};
  result["write"] = rates("write", o.bytes, writes);
  clear();
  save();
  result["read"] = rates("read", o.bytes, pairs(load, dd_read, [&] { forget(file); }));
  if (!o.json.empty()) write_json(o.json, result);
  for (const char* way : {"write", "read"}) {
    if (o.check && result[way]["ratio"]["median"] < kLeast) throw CLI::RuntimeError(1);
  }
}

}  // namespace

void add_bench_checkpoint(CLI::App& bench) {
  auto o = std::make_shared<BenchCheckpointOptions>();
  CLI::App* command = bench.add_subcommand(
      "checkpoint", "Saving and loading, compared with dd with fsync on the same disk");
  command->footer(
      "Example: weft bench checkpoint --dir runs --bytes 4294967296 --json checkpoint.json\n"
      "Saving counts hashing, syncing, reading back, index and "
      "manifest; dd copies the same bytes out of memory, with fsync.\n"
      "Loading counts the check of all hashes; dd reads "
      "the same file. Both read it from the disk alone.\n"
      "JSON: write and read, each {gb_per_s, dd_gb_per_s, ratio {median, q1, "
      "q3, repetitions}, processor_s_per_gb, dd_processor_s_per_gb, ms, dd_ms}.");
  command->add_option("--dir", o->dir, "A folder on the disk to measure");
  command->add_option("--bytes", o->bytes, "Bytes of the checkpoint")->check(CLI::PositiveNumber);
  command->add_option("--pairs", o->pairs, "Repetitions of two saves and two copies by dd")
      ->check(CLI::PositiveNumber);
  command->add_flag("--check", o->check, "Exit code 1 below 70 % of dd's rate, either way");
  command->add_option("--json", o->json, "Writes the result to this file");
  command->callback([o] { run(*o); });
}

}  // namespace weft
