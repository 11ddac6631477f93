#include "parallel/checkpoint_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include "core/hash.h"
#include "core/hdf5.h"
#include "core/new_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPublished = "step-", kWriting = ".writing-", kRemoving = ".removing-",
                           kDamaged = "damaged-";

std::string step_name(int64_t step) { return fmt::format("step-{:09}", step); }
fs::path parent_of(const std::string& path) {
  const fs::path parent = fs::absolute(path).lexically_normal().parent_path();
  return parent.empty() ? "/" : parent;
}

std::string size_text(int64_t bytes) {
  const double x = static_cast<double>(bytes);
  if (bytes >= 1 << 30) return fmt::format("{:.1f} GiB", x / (1 << 30));
  return fmt::format("{:.1f} MiB", x / (1 << 20));
}

std::vector<fs::path> entries(const std::string& folder, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing)) {
    if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// First out of sight, then off the disk: half of a checkpoint never carries a step's name.
void remove_checkpoint(const fs::path& path) {
  const fs::path hidden = path.parent_path() / (std::string(kRemoving) + path.filename().string());
  fs::remove_all(hidden);
  fs::rename(path, hidden);
  fs::remove_all(hidden);
}

void write_index(const std::string& folder, Manifest& manifest) {
  std::map<std::string, VirtualDataset> tensors;
  for (const Manifest::Piece& p : manifest.pieces) {
    VirtualDataset& t = tensors[p.tensor];
    t.name = p.tensor;
    t.shape = p.global;
    t.parts.push_back({p.file, p.dataset, p.slice.offset, p.slice.extent});
  }
  std::vector<VirtualDataset> all;
  for (auto& [name, tensor] : tensors) all.push_back(std::move(tensor));
  create_virtual_hdf5(folder + "/" + kIndexName, all);
  sync_path(folder + "/" + kIndexName);
  manifest.index = describe_file(folder, kIndexName);
}

void write_manifest(const std::string& folder, const Manifest& manifest) {
  const std::string text = to_json(manifest);
  NewFile file(folder + "/" + kManifestName);
  file.write(text.data(), static_cast<int64_t>(text.size()));
  file.finish();
  sync_path(folder);
}

// One rename. A run that came this far before, and started again from an older checkpoint, has one
// of this name: the two change places, so that at every moment one of them carries it.
void rename_into_place(const std::string& beside, const std::string& target) {
  if (renameat2(AT_FDCWD, beside.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(beside);
    return;
  }
  if (fs::exists(target)) remove_checkpoint(target);  // a file system without that call
  fs::rename(beside, target);
}

}  // namespace

std::string checkpoint_path(const std::string& folder, int64_t step) {
  return folder + "/" + step_name(step);
}

std::string writing_path(const std::string& folder, int64_t step) {
  return folder + "/" + std::string(kWriting) + step_name(step);
}

std::string rank_file(int rank) { return fmt::format("rank-{:05}.h5", rank); }

std::string_view name_of(SaveMoment moment) {
  static constexpr std::array<std::string_view, static_cast<size_t>(SaveMoment::kCount)> kNames = {
      "begun", "written", "synced", "indexed", "described", "renamed", "published", "pruning"};
  return kNames[static_cast<size_t>(moment)];
}

void dawdle(const std::function<void()>& progress) {
  const char* const until = std::getenv("WEFT_FAIL_UNTIL");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (until != nullptr ? !fs::exists(until) : std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (progress) progress();
  }
}

void save_drill(int rank, int64_t step, SaveMoment moment,
                const std::function<void()>& progress) {
  const char* at = std::getenv("WEFT_FAIL_AT");
  if (at == nullptr) return;
  const std::string here = fmt::format("{}:{}:{}", rank, step, name_of(moment));
  if (here == at) std::raise(SIGKILL);
  if (here + ":fails" == at) throw Error("a drill: WEFT_FAIL_AT={}", at);
  if (here + ":slow" == at) dawdle(progress);
}

std::vector<std::string> published_checkpoints(const std::string& folder) {
  std::vector<std::string> paths;
  for (const fs::path& path : entries(folder, kPublished)) paths.push_back(path.string());
  return paths;
}

int64_t room_for(const std::string& folder) {
  fs::path place = fs::absolute(folder);
  while (!fs::exists(place) && place.has_relative_path()) place = place.parent_path();
  struct statvfs disk {};
  if (statvfs(place.c_str(), &disk) != 0) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
}

std::string begin_writing(const std::string& folder, int64_t step, int64_t bytes) {
  std::error_code failure;
  const bool made = fs::create_directories(folder, failure);
  if (failure) {
    throw Error("{}: cannot make the folder of checkpoints: {}", folder, failure.message());
  }
  if (made) sync_path(parent_of(folder).string());
  for (const std::string_view left : {kWriting, kRemoving}) {
    for (const fs::path& path : entries(folder, left)) fs::remove_all(path, failure);
  }
  if (const int64_t room = room_for(folder); room < bytes + kCheckpointExtra) {
    throw Error("{}: a checkpoint takes {}, the disk has {} left; nothing was changed", folder,
                size_text(bytes + kCheckpointExtra), size_text(room));
  }
  const std::string beside = writing_path(folder, step);
  fs::create_directory(beside, failure);
  if (failure) throw Error("{}: cannot be written: {}", folder, failure.message());
  save_drill(0, step, SaveMoment::kBegun);
  return beside;
}

void abandon_writing(const std::string& folder, int64_t step) {
  std::error_code ignored;
  fs::remove_all(writing_path(folder, step), ignored);
}

std::string publish_checkpoint(const std::string& folder, Manifest manifest, int64_t keep) {
  const std::string beside = writing_path(folder, manifest.step);
  const std::string target = checkpoint_path(folder, manifest.step);
  write_index(beside, manifest);
  save_drill(0, manifest.step, SaveMoment::kIndexed);
  write_manifest(beside, manifest);
  save_drill(0, manifest.step, SaveMoment::kDescribed);
  rename_into_place(beside, target);
  save_drill(0, manifest.step, SaveMoment::kRenamed);
  sync_path(folder);
  save_drill(0, manifest.step, SaveMoment::kPublished);
  std::vector<std::string> older = published_checkpoints(folder);
  std::erase_if(older, [&](const std::string& path) { return fs::path(path) > fs::path(target); });
  for (size_t i = 0; keep > 0 && i + static_cast<size_t>(keep) < older.size(); ++i) {
    remove_checkpoint(older[i]);
    save_drill(0, manifest.step, SaveMoment::kPruning);
  }
  return target;
}

void set_aside_after(const std::string& folder, int64_t step) {
  for (const std::string& path : published_checkpoints(folder)) {
    if (fs::path(path) <= fs::path(checkpoint_path(folder, step))) continue;
    const fs::path aside =
        fs::path(folder) / (std::string(kDamaged) + fs::path(path).filename().string());
    fs::remove_all(aside);
    fs::rename(path, aside);
  }
}

std::string set_aside_all(const std::string& folder) {
  if (published_checkpoints(folder).empty()) return "";
  for (int number = 1;; ++number) {
    const std::string aside = fmt::format("{}.{}", folder, number);
    if (fs::exists(aside)) continue;
    fs::rename(folder, aside);
    return aside;
  }
}

void sync_path(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = fd >= 0 && fsync(fd) == 0;
  const int failure = errno;
  if (fd >= 0) close(fd);
  if (!synced) throw Error("{}: cannot be synced to the disk: {}", path, std::strerror(failure));
}

Manifest::File describe_file(const std::string& folder, const std::string& name,
                             const UseBlock& use) {
  const std::string path = folder + "/" + name;
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) {
    throw ConfigError("{}: is a link that leads elsewhere; refused", path);
  }
  const RegularFile file(path);
  Hasher hash;
  read_through(file, [&](int64_t at, std::span<const std::byte> block) {
    hash.add(block);
    if (use) use(at, block);
  });
  return {name, file.size(), hash.text()};
}

void check_file(const std::string& folder, const Manifest::File& file, const UseBlock& use) {
  std::error_code unknown;
  const auto bytes = static_cast<int64_t>(fs::file_size(folder + "/" + file.name, unknown));
  if (!unknown && bytes != file.bytes) {
    throw ConfigError("{}/{}: has {} bytes, the manifest says {}", folder, file.name, bytes,
                      file.bytes);
  }
  const Manifest::File real = describe_file(folder, file.name, use);
  if (real.bytes != file.bytes || real.hash != file.hash) {
    throw ConfigError("{}/{}: is damaged: its hash is not the manifest's", folder, file.name);
  }
}

}  // namespace weft
