#include "parallel/checkpoint/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sstream>

#include "core/files/hash.h"
#include "core/files/hdf5.h"
#include "core/report/run_record.h"
#include "parallel/checkpoint/checked_file.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_reader.h"

namespace weft {
namespace {

constexpr int64_t kMaxManifest = int64_t{1} << 30;  // bytes

// Whether the system says that bytes are gone.
bool tells_damage(int reason) {
  return reason == 0 || reason == ENOENT || reason == ENOTDIR || reason == ELOOP || reason == EIO ||
         reason == EUCLEAN || reason == EBADMSG;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// What any rank has found.
std::string first_damage(HostGroup& world, const std::string& mine) {
  for (const std::string& damage : world.gather_texts(mine)) {
    if (!damage.empty()) return damage;
  }
  return "";
}

std::string hash_of_slice(const RegularFile& file, const Manifest::Piece& piece) {
  std::vector<std::byte> room(static_cast<size_t>(std::min(kHashedBlock, bytes_of(piece))));
  Hasher hash;
  for (int64_t done = 0; done < bytes_of(piece);) {
    const int64_t count = std::min(kHashedBlock, bytes_of(piece) - done);
    const auto bytes = std::span(room).first(static_cast<size_t>(count));
    file.read(piece.position + done, bytes);
    hash.add(bytes);
    done += count;
  }
  return hash.text();
}

// A checkpoint under the name of another step, or in the folder of another run, was renamed or
// copied there: who asks for the newest of a run must not get it.
void check_place(const FoundCheckpoint& found) {
  const Manifest& m = found.manifest;
  const std::optional<int64_t> named = step_of_path(found.path);
  if (!named) return;
  if (*named != m.step) {
    throw Damage("{}: holds step {}; it was renamed or copied, and can be used as {}", found.path,
                 m.step, checkpoint_path("...", m.step));
  }
  const std::filesystem::path folder =
      (std::filesystem::path(found.path) / "").lexically_normal().parent_path().parent_path();
  const std::string own =
      folder.filename() == kCheckpoints ? run_name_in(folder.parent_path().string()) : "";
  if (own.empty() || m.run.empty() || own == m.run) return;
  throw Damage(
      "{}: is of run {}, and the folder belongs to run {} (run.json); it was copied there, and can "
      "be used from a folder of its own",
      found.path, m.run, own);
}

}  // namespace

std::string damage_of(const std::function<void()>& use) {
  try {
    use();
    return "";
  } catch (const Damage& damage) {
    return damage.what();
  } catch (const OpenError& failure) {
    if (!tells_damage(failure.reason)) throw;
    return failure.what();
  } catch (const ReadError& failure) {
    if (!tells_damage(failure.reason)) throw;
    return failure.what();
  }
}

FoundCheckpoint read_checkpoint(const std::string& path) {
  const std::string name = path + "/" + kManifestName;
  const RegularFile file(name, RegularFile::Links::kRefuse);
  if (file.size() > kMaxManifest)
    throw Damage("{}: has {} bytes, no manifest does", name, file.size());
  FoundCheckpoint found{path, manifest_from_json(content_of(file), name)};
  check_place(found);
  return found;
}

FoundCheckpoint verify_checkpoint(const std::string& path) {
  FoundCheckpoint found = read_checkpoint(path);
  CheckpointReader(found).read_and_check({}, {});
  return found;
}

FoundCheckpoint verify_completely(const std::string& path) {
  FoundCheckpoint found = verify_checkpoint(path);
  if (!found.manifest.index.name.empty()) check_file(path, found.manifest.index);
  for (const Manifest::File& listed : found.manifest.files) {
    const RegularFile file(path + "/" + listed.name, RegularFile::Links::kRefuse);
    std::vector<Hdf5Expected> expected;
    for (const Manifest::Piece& p : found.manifest.pieces) {
      if (p.file != listed.name) continue;
      if (hash_of_slice(file, p) != p.hash) {
        throw Damage("{}: the slice of {} at byte {} is damaged", file.path(), p.tensor,
                     p.position);
      }
      expected.push_back({{p.dataset, p.slice.extent}, p.position});
    }
    try {
      check_hdf5(file.path(), expected);
    } catch (const Error& otherwise) {
      throw Damage("{}", otherwise.what());
    }
  }
  return found;
}

OtherFiles others_of(const FoundCheckpoint& found) {
  OtherFiles others;
  for (const Manifest::File& file : found.manifest.others) {
    others[file.name] = content_of(found.path, file);
  }
  return others;
}

std::optional<FoundCheckpoint> use_newest(HostGroup& world,
                                          const std::vector<std::string>& oldest_first,
                                          const ReportDamage& report, const UseCheckpoint& use) {
  std::string listed;
  for (const std::string& path : oldest_first) listed += path + "\n";
  std::vector<std::string> paths = lines_of(world.text_of_first(listed));
  if (paths.empty()) return std::nullopt;
  const size_t count = paths.size();
  const std::string oldest = paths.front();
  std::string damage;
  for (; !paths.empty(); paths.pop_back()) {
    FoundCheckpoint found;
    damage = first_damage(world, damage_of([&] { found = read_checkpoint(paths.back()); }));
    if (damage.empty()) damage = first_damage(world, damage_of([&] { use(found); }));
    if (damage.empty()) return found;
    if (world.rank() == 0) report(damage);
  }
  throw Error(
      "{}: none of its {} checkpoints is whole; of the oldest: {}. Bring one "
      "back from elsewhere, or start anew: run.resume=never keeps them beside",
      std::filesystem::path(oldest).parent_path().string(), count, damage);
}

std::optional<FoundCheckpoint> load_newest(HostGroup& world, const NewestLoad& load) {
  const auto use = [&](const FoundCheckpoint& found) {
    const std::vector<SavedTensor> into = load.tensors(found);
    CheckpointReader reader(found, load.progress);
    for (const SavedTensor& t : into) reader.expect(t.name, t.global);
    reader.read_and_check({world.rank(), world.size()}, into);
  };
  std::vector<std::string> paths;
  if (world.rank() == 0) paths = published_checkpoints(load.folder);
  return use_newest(world, paths, load.report, use);
}

}  // namespace weft
