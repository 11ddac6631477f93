#include "parallel/checkpoint.h"

#include <algorithm>
#include <sstream>

#include "core/hash.h"
#include "core/hdf5.h"
#include "parallel/agree.h"
#include "parallel/checkpoint_folder.h"

namespace weft {
namespace {

std::string read_text(const std::string& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.size())};
}

std::string damage_of(const std::function<void()>& check) {
  try {
    check();
    return "";
  } catch (const OtherVersion&) {
    throw;  // on all ranks alike: they all read the manifest
  } catch (const std::exception& damage) {
    return damage.what();
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Newest first; the first one in which no rank finds damage.
template <class Check>
std::optional<FoundCheckpoint> first_whole(const std::string& folder,
                                           const std::vector<std::string>& oldest_first,
                                           const ReportDamage& report, Check&& check) {
  std::string last;
  for (auto path = oldest_first.rbegin(); path != oldest_first.rend(); ++path) {
    FoundCheckpoint found;
    const std::string damage = check(*path, found);
    if (damage.empty()) return found;
    report(damage);
    last = damage;
  }
  if (oldest_first.empty()) return std::nullopt;
  throw Error(
      "{}: none of its {} checkpoints is whole; of the oldest: {}. Bring one back from elsewhere, or "
      "start anew: run.resume=never keeps them beside",
      folder, oldest_first.size(), last);
}

// What any rank has found.
std::string first_damage(Exec& exec, Communicator& world, const std::string& mine) {
  for (const std::string& damage : gather_texts(exec, world, mine)) {
    if (!damage.empty()) return damage;
  }
  return "";
}

}  // namespace

FoundCheckpoint read_checkpoint(const std::string& path) {
  const std::string manifest_path = path + "/" + kManifestName;
  return {path, manifest_from_json(read_text(manifest_path), manifest_path)};
}

FoundCheckpoint verify_checkpoint(const std::string& path) {
  FoundCheckpoint found = read_checkpoint(path);
  for (const Manifest::File& file : found.manifest.files) check_file(path, file);
  return found;
}

FoundCheckpoint verify_completely(const std::string& path) {
  FoundCheckpoint found = verify_checkpoint(path);
  if (!found.manifest.index.name.empty()) check_file(path, found.manifest.index);
  for (const Manifest::File& listed : found.manifest.files) {
    const std::string file_path = path + "/" + listed.name;
    const MappedFile file(file_path);
    std::vector<Hdf5Expected> expected;
    for (const Manifest::Piece& p : found.manifest.pieces) {
      if (p.file != listed.name) continue;
      const auto at = static_cast<size_t>(p.position), bytes = static_cast<size_t>(bytes_of(p));
      if (hash_of(file.bytes().subspan(at, bytes)) != p.hash) {
        throw ConfigError("{}: the slice of {} at byte {} is damaged", file_path, p.tensor,
                          p.position);
      }
      expected.push_back({{p.dataset, p.slice.extent}, p.position});
    }
    check_hdf5(file_path, expected);
  }
  return found;
}

std::optional<FoundCheckpoint> newest_checkpoint(const std::string& folder,
                                                 const ReportDamage& report) {
  const auto check = [](const std::string& path, FoundCheckpoint& found) {
    return damage_of([&] { found = verify_checkpoint(path); });
  };
  return first_whole(folder, published_checkpoints(folder), report, check);
}

std::optional<FoundCheckpoint> load_newest(Exec& exec, Communicator& world,
                                           const NewestLoad& load) {
  const CheckpointReader::Share share{world.rank(), world.size()};
  const auto check = [&](const std::string& path, FoundCheckpoint& found) -> std::string {
    std::string damage =
        first_damage(exec, world, damage_of([&] { found = read_checkpoint(path); }));
    if (!damage.empty()) return damage;
    const std::vector<SavedTensor> into = load.tensors(found);
    CheckpointReader reader(found);
    for (const SavedTensor& t : into) reader.expect(t.name, t.global);
    damage = first_damage(exec, world, damage_of([&] { reader.read_and_check(share, into); }));
    if (damage.empty()) reader.read_rest(share, into);
    return damage;
  };
  // The first rank lists and reports, so that all look at the same ones.
  std::string listed;
  if (world.rank() == 0) {
    for (const std::string& path : published_checkpoints(load.folder)) listed += path + "\n";
  }
  const auto report = [&](const std::string& what) {
    if (world.rank() == 0) load.report(what);
  };
  return first_whole(load.folder, lines_of(text_of_first(exec, world, listed)), report, check);
}

}  // namespace weft
