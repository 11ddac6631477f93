#include "launcher/resume.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>

#include "parallel/checkpoint_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// Keys of [model] that change how a model is trained or computed, not what it is.
const std::set<std::string> kRunKeys = {"compute", "aux_loss", "z_loss", "capacity", "drop_policy"};

// "table.key" -> value of everything that makes the model what it is.
std::map<std::string, std::string> identity_of(const Config& config) {
  ModelConfig model = config.model;
  std::istringstream lines(
      print_toml(write_fields([&](FieldVisitor& f) { f.table("model", model, "the model"); })));
  std::map<std::string, std::string> keys;
  std::string table;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("[")) table = line.substr(1, line.find(']') - 1);
    const size_t equals = line.find(" = ");
    if (equals == std::string::npos) continue;
    const std::string key = line.substr(0, equals);
    if (!kRunKeys.contains(key)) keys[table + "." + key] = line.substr(equals + 3);
  }
  return keys;
}

}  // namespace

FoundCheckpoint open_checkpoint(const std::string& path) {
  if (fs::exists(path + "/manifest.json")) return verify_checkpoint(path);
  const auto report = [&](const std::string& what) {
    fmt::print(stderr, "weft: damaged  {}; the one before it is tried\n", what);
  };
  for (const std::string& folder : {checkpoint_folder(path), path}) {
    if (auto found = newest_checkpoint(folder, report)) return *found;
  }
  throw ConfigError("{}: holds no checkpoint; name a run's folder (run.dir) or one of its checkpoints/step-N",
                    path);
}

std::vector<std::string> list_checkpoints(const std::string& path) {
  if (fs::exists(path + "/manifest.json")) return {path};
  for (const std::string& folder : {checkpoint_folder(path), path}) {
    const std::vector<std::string> found = published_checkpoints(folder);
    if (!found.empty()) return found;
  }
  throw ConfigError("{}: holds no checkpoint; name a run's folder (run.dir) or one of its checkpoints/step-N",
                    path);
}

void check_resumable(const Config& config, const std::map<std::string, std::string>& data_hashes,
                     const FoundCheckpoint& checkpoint) {
  const Config before = config_from_text(checkpoint.manifest.config, checkpoint.path);
  const auto now = identity_of(config), then = identity_of(before);
  for (const auto& [key, value] : now) {
    const auto old = then.find(key);
    if (old != then.end() && old->second == value) continue;
    throw ConfigError("{}: {} = {}, but {} was trained with {}; use that value, another run.dir, or "
                      "run.resume=never",
                      config.where(key), key, value, checkpoint.path,
                      old == then.end() ? "nothing there" : old->second);
  }
  for (const auto& [file, hash] : data_hashes) {
    const auto old = checkpoint.manifest.data.find(file);
    if (old == checkpoint.manifest.data.end() || old->second == hash) continue;
    throw ConfigError("{}: has changed since {} was written; resuming would repeat or skip text. Restore it, "
                      "give it another name, or set run.resume=never",
                      file, checkpoint.path);
  }
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
  throw ConfigError("run.dir = {}: another run is writing there; wait for it or choose another folder", run_dir);
}

RunLock::~RunLock() { close(fd_); }

}  // namespace weft
