#include "parallel/checkpoint/checkpoint_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "core/files/hdf5.h"
#include "core/files/new_file.h"
#include "core/files/system_calls.h"
#include "parallel/checkpoint/checked_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kStep = "step-", kWriting = ".writing-", kReplaced = ".replaced-",
                           kRemoving = ".removing-", kDamaged = "damaged-";

std::string step_name(int64_t step) { return fmt::format("{}{:09}", kStep, step); }

std::string size_text(int64_t bytes) {
  const double x = static_cast<double>(bytes);
  if (bytes >= 1 << 30) return fmt::format("{:.1f} GiB", x / (1 << 30));
  return fmt::format("{:.1f} MiB", x / (1 << 20));
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    names.push_back(entry->path().filename().string());
  }
  const bool none =
      failure == std::errc::no_such_file_or_directory || failure == std::errc::not_a_directory;
  if (failure && !none) {
    throw Error("{}: cannot be read: {}", folder, failure.message());
  }
  return names;
}

// The step of a name that consists of `prefix` and a step's name, and of nothing else.
std::optional<int64_t> step_in(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  int64_t step = -1;
  if (!name.starts_with(kStep)) return std::nullopt;
  std::from_chars(name.data() + kStep.size(), name.data() + name.size(), step);
  if (step < 0 || name != step_name(step)) return std::nullopt;
  return step;
}

using Steps = std::map<int64_t, std::string>;  // paths by step
Steps steps_with(const std::string& folder, std::string_view prefix) {
  Steps found;
  for (const std::string& name : names_in(folder)) {
    if (const auto step = step_in(name, prefix)) found[*step] = folder + "/" + name;
  }
  return found;
}

Steps published_steps(const std::string& folder) {
  Steps steps = steps_with(folder, "");
  for (const auto& [step, path] : steps_with(folder, kReplaced)) steps.emplace(step, path);
  return steps;
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
  write_checked(folder + "/" + kManifestName, to_json(manifest));  // syncs all names in the folder
}

[[noreturn]] void cannot_be_named(const std::string& path) {
  throw Error("{}: the checkpoint cannot get this name: {}", path, std::strerror(errno));
}

// One rename. Where there is one of this step already, the two change places, so that at every
// moment one of them carries the name. Returns where the other one is now; empty when there is
// none.
std::string rename_into_place(const std::string& folder, int64_t step, const SaveHook& at) {
  const std::string beside = writing_path(folder, step), target = checkpoint_path(folder, step);
  if (sys::exchange(beside.c_str(), target.c_str()) == 0) return beside;
  const bool impossible = errno == ENOENT || errno == EINVAL || errno == ENOSYS;
  if (!impossible) cannot_be_named(target);
  std::string replaced;
  if (fs::exists(target)) {  // a file system without that call
    replaced = folder + "/" + std::string(kReplaced) + step_name(step);
    fs::remove_all(replaced);
    if (sys::rename(target.c_str(), replaced.c_str()) != 0) cannot_be_named(replaced);
    reach(at, step, SaveMoment::kReplacing);
  }
  if (sys::rename(beside.c_str(), target.c_str()) != 0) cannot_be_named(target);
  return replaced;
}

// First they lose their names, then their files.
void prune(const std::string& folder, int64_t newest, int64_t keep, const SaveHook& at) {
  Steps steps = published_steps(folder);
  steps.erase(steps.upper_bound(newest), steps.end());
  std::vector<std::string> hidden;
  for (; keep > 0 && std::ssize(steps) > keep; steps.erase(steps.begin())) {
    hidden.push_back(folder + "/" + std::string(kRemoving) + step_name(steps.begin()->first));
    fs::remove_all(hidden.back());
    const std::string& old = steps.begin()->second;
    if (sys::rename(old.c_str(), hidden.back().c_str()) != 0) {
      throw Error("{}: cannot be renamed: {}", old, std::strerror(errno));
    }
  }
  if (!hidden.empty()) sync_path(folder);
  for (const std::string& path : hidden) {
    fs::remove_all(path);
    reach(at, newest, SaveMoment::kPruning);
  }
}

// A new folder, with all those above it that are new. What was made before by others need not be on
// the disk yet, so all of them are synced that we may open.
void make_folder(const std::string& folder) {
  std::error_code failure;
  const bool made = fs::create_directories(folder, failure);
  if (failure) {
    throw Error("{}: cannot make the folder of checkpoints: {}", folder, failure.message());
  }
  if (!made) return;
  fs::path above = fs::absolute(folder).lexically_normal();
  do {
    above = above.parent_path();
    if (access(above.c_str(), R_OK) == 0) sync_path(above.string());
  } while (above.has_relative_path());
}

}  // namespace

std::optional<int64_t> step_of_path(const std::string& path) {
  return step_in((fs::path(path) / "").lexically_normal().parent_path().filename().string(), "");
}

std::string checkpoint_path(const std::string& folder, int64_t step) {
  return folder + "/" + step_name(step);
}

std::string writing_path(const std::string& folder, int64_t step) {
  return folder + "/" + std::string(kWriting) + step_name(step);
}

std::vector<std::string> remove_unfinished(const std::string& folder) {
  std::vector<std::string> left, removed;
  for (const std::string_view kind : {kWriting, kRemoving}) {
    for (const auto& [step, path] : steps_with(folder, kind)) left.push_back(path);
  }
  const Steps published = steps_with(folder, "");
  for (const auto& [step, path] : steps_with(folder, kReplaced)) {
    if (published.contains(step)) left.push_back(path);
  }
  for (const std::string& path : left) {
    std::error_code failure;
    fs::remove_all(path, failure);
    if (!failure) removed.push_back(fs::path(path).filename().string());
  }
  return removed;
}

std::string rank_file(int rank) { return fmt::format("rank-{:05}.h5", rank); }

std::vector<std::string> published_checkpoints(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& [step, path] : published_steps(folder)) paths.push_back(path);
  return paths;
}

int64_t room_for(const std::string& folder) {
  fs::path place = fs::absolute(folder);
  while (!fs::exists(place) && place.has_relative_path()) place = place.parent_path();
  struct statvfs disk {};
  if (sys::room(place.c_str(), &disk) != 0) {
    throw Error("{}: the disk does not say what room it has: {}", place.string(),
                std::strerror(errno));
  }
  return static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
}

std::string begin_writing(const std::string& folder, int64_t step, int64_t bytes,
                          const SaveHook& at) {
  make_folder(folder);
  remove_unfinished(folder);
  if (const int64_t room = room_for(folder); room < bytes + kCheckpointExtra) {
    throw Error("{}: a checkpoint takes {}, the disk has {} left; nothing was changed", folder,
                size_text(bytes + kCheckpointExtra), size_text(room));
  }
  const std::string beside = writing_path(folder, step);
  std::error_code failure;
  fs::create_directory(beside, failure);
  if (failure) throw Error("{}: cannot be written: {}", folder, failure.message());
  reach(at, step, SaveMoment::kBegun);
  return beside;
}

void abandon_writing(const std::string& folder, int64_t step) {
  std::error_code ignored;
  fs::remove_all(writing_path(folder, step), ignored);
}

Published publish_checkpoint(const std::string& folder, Manifest manifest, int64_t keep,
                             const SaveHook& at) {
  const std::string beside = writing_path(folder, manifest.step);
  write_index(beside, manifest);
  reach(at, manifest.step, SaveMoment::kIndexed);
  write_manifest(beside, manifest);
  reach(at, manifest.step, SaveMoment::kDescribed);
  const std::string replaced = rename_into_place(folder, manifest.step, at);
  reach(at, manifest.step, SaveMoment::kRenamed);
  sync_path(folder);
  reach(at, manifest.step, SaveMoment::kPublished);
  Published published{checkpoint_path(folder, manifest.step), ""};
  try {
    if (!replaced.empty()) fs::remove_all(replaced);
    prune(folder, manifest.step, keep, at);
  } catch (const std::exception& e) {
    published.left = e.what();
  }
  return published;
}

void set_aside_after(const std::string& folder, int64_t step) {
  for (const auto& [later, path] : published_steps(folder)) {
    if (later <= step) continue;
    const std::string aside = folder + "/" + std::string(kDamaged) + step_name(later);
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

}  // namespace weft
