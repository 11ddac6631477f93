#include "launcher/checkpoint/checkpoint_lookup.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "parallel/checkpoint/checkpoint_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

void report_damage(const std::string& what) {
  fmt::print(stderr, "weft: damaged  {}; the one before it is tried\n", what);
}

}  // namespace

FoundCheckpoint open_checkpoint(const std::string& path) {
  return use_checkpoint(path, [](const FoundCheckpoint&) {});
}

FoundCheckpoint use_checkpoint(HostGroup& world, const std::string& path,
                               const UseCheckpoint& use) {
  const std::vector<std::string> found = list_checkpoints(path);
  if (found == std::vector{path}) {  // no other would do
    FoundCheckpoint only = read_checkpoint(path);
    use(only);
    return only;
  }
  return use_newest(world, found, report_damage, use).value();
}

FoundCheckpoint use_checkpoint(const std::string& path, const UseCheckpoint& use) {
  SelfHosts self;
  return use_checkpoint(self, path, use);
}

void say_taken(const FoundCheckpoint& found) {
  const Manifest& m = found.manifest;
  fmt::print(stderr, "weft: takes step {}{} ({})\n", m.step,
             m.run.empty() ? "" : " of run " + m.run, found.path);
}

std::vector<std::string> list_checkpoints(const std::string& path) {
  if (fs::exists(path + "/manifest.json")) return {path};
  for (const std::string& folder : {checkpoint_folder(path), path}) {
    const std::vector<std::string> found = published_checkpoints(folder);
    if (!found.empty()) return found;
  }
  throw ConfigError(
      "{}: holds no checkpoint; name a run's folder (run.dir) or one of its checkpoints/step-N",
      path);
}

RunLock::RunLock(const std::string& run_dir) {
  std::error_code failure;
  fs::create_directories(run_dir, failure);
  const std::string path = run_dir + "/lock";
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    throw ConfigError("run.dir = {}: cannot be written: {}; choose another folder", run_dir,
                      failure ? failure.message() : std::strerror(errno));
  }
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  close(fd_);
  throw ConfigError(
      "run.dir = {}: another run is writing there; wait for it or choose another folder", run_dir);
}

RunLock::~RunLock() { close(fd_); }

}  // namespace weft
