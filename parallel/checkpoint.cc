#include "parallel/checkpoint.h"

#include <algorithm>
#include <sstream>

#include "core/hash.h"
#include "core/hdf5.h"
#include "parallel/agree.h"
#include "parallel/boxes.h"
#include "parallel/checkpoint_folder.h"

namespace weft {
namespace {

std::string read_text(const std::string& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.size())};
}

void check_file(const std::string& path, const Manifest::File& file) {
  const Manifest::File real = describe_file(path, file.name);
  if (real.bytes != file.bytes) {
    throw ConfigError("{}/{}: has {} bytes, the manifest says {}", path, file.name, real.bytes,
                      file.bytes);
  }
  if (real.hash != file.hash) {
    throw ConfigError("{}/{}: is damaged: its hash is not the manifest's", path, file.name);
  }
}

// Every `ranks`-th file from `rank` on.
FoundCheckpoint verify_share(const std::string& path, int rank, int ranks) {
  FoundCheckpoint found = read_checkpoint(path);
  const auto step = static_cast<size_t>(ranks);
  for (size_t i = static_cast<size_t>(rank); i < found.manifest.files.size(); i += step) {
    check_file(path, found.manifest.files[i]);
  }
  return found;
}

std::string damage_of(const std::function<void()>& check) {
  try {
    check();
    return "";
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
  throw Error("{}: none of its {} checkpoints is whole; of the oldest: {}", folder,
              oldest_first.size(), last);
}

}  // namespace

FoundCheckpoint read_checkpoint(const std::string& path) {
  const std::string manifest_path = path + "/" + kManifestName;
  return {path, manifest_from_json(read_text(manifest_path), manifest_path)};
}

FoundCheckpoint verify_checkpoint(const std::string& path) { return verify_share(path, 0, 1); }

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

std::optional<FoundCheckpoint> newest_checkpoint(Exec& exec, Communicator& world,
                                                 const std::string& folder,
                                                 const ReportDamage& report) {
  const int rank = world.rank();
  std::string listed;
  if (rank == 0) {
    for (const std::string& path : published_checkpoints(folder)) listed += path + "\n";
  }
  const auto check = [&](const std::string& path, FoundCheckpoint& found) -> std::string {
    const std::string mine = damage_of([&] { found = verify_share(path, rank, world.size()); });
    for (const std::string& damage : gather_texts(exec, world, mine)) {
      if (!damage.empty()) return damage;
    }
    return "";
  };
  const auto first_reports = [&](const std::string& what) {
    if (rank == 0) report(what);
  };
  return first_whole(folder, lines_of(text_of_first(exec, world, listed)), first_reports, check);
}

CheckpointReader::CheckpointReader(const FoundCheckpoint& from) : from_(from) {
  for (const Manifest::Piece& piece : from.manifest.pieces) pieces_[piece.tensor].push_back(&piece);
}

const std::vector<const Manifest::Piece*>& CheckpointReader::pieces_of(const std::string& tensor,
                                                                       const Shape& global) const {
  const auto found = pieces_.find(tensor);
  if (found == pieces_.end()) throw ConfigError("{}: holds no {}", from_.path, tensor);
  const Shape& there = found->second.front()->global;
  if (!(there == global)) {
    throw ConfigError("{}: {} is {}, the model's is {}", from_.path, tensor, there, global);
  }
  return found->second;
}

void CheckpointReader::expect(const std::string& tensor, const Shape& global) const {
  pieces_of(tensor, global);
}

void CheckpointReader::read(const SavedTensor& into) {
  const auto& pieces = pieces_of(into.name, into.global);
  for (size_t i = 0; i < into.slices.size(); ++i) {
    const Slice& wanted = into.slices[i];
    const Shape start = local_offset(into.slices, i);
    for (const Manifest::Piece* piece : pieces) {
      const std::optional<Slice> both = intersection(wanted, piece->slice);
      if (!both) continue;
      auto file = files_.find(piece->file);
      if (file == files_.end()) {
        file = files_.emplace(piece->file, MappedFile(from_.path + "/" + piece->file)).first;
      }
      WEFT_CHECK(piece->position + bytes_of(*piece) <= file->second.size(),
                 "{} became shorter while it was read", file->second.path());
      const auto* data = reinterpret_cast<const char*>(file->second.data()) + piece->position;
      copy_box({data, piece->slice.extent, minus(both->offset, piece->slice.offset)},
               {static_cast<char*>(into.local.raw()), into.local.shape(),
                plus(start, minus(both->offset, wanted.offset))},
               both->extent);
    }
  }
}

void load_tensors(const FoundCheckpoint& from, const std::vector<SavedTensor>& into) {
  CheckpointReader reader(from);
  for (const SavedTensor& t : into) reader.expect(t.name, t.global);
  for (const SavedTensor& t : into) reader.read(t);
}

}  // namespace weft
