#include "parallel/checkpoint/checkpoint_write.h"

#include <filesystem>
#include <map>

#include "core/files/hdf5.h"
#include "core/files/new_file.h"
#include "core/files/regular_file.h"
#include "core/host_access.h"
#include "parallel/checkpoint/boxes.h"
#include "parallel/checkpoint/checked_file.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_parts.h"
#include "parallel/checkpoint/part_file.h"

namespace weft {
namespace {

// Boxes of one tensor stand in a folder of its name, one alone carries the name itself.
std::vector<Manifest::Piece> list_pieces(const std::string& file,
                                         const std::vector<SavedTensor>& tensors) {
  std::map<std::string, size_t> boxes, listed;
  for (const SavedTensor& t : tensors) boxes[t.name] += t.slices.size();
  std::vector<Manifest::Piece> pieces;
  for (const SavedTensor& t : tensors) {
    for (const Slice& slice : t.slices) {
      const std::string dataset =
          boxes[t.name] == 1 ? t.name : fmt::format("{}/{}", t.name, listed[t.name]++);
      pieces.push_back({t.name, file, dataset, t.global, slice});
    }
  }
  return pieces;
}

void fill_pieces(PartFile& file, const std::vector<SavedTensor>& tensors, const BringTensor& bring,
                 const std::vector<Manifest::Piece>& pieces) {
  size_t piece = 0;
  for (SavedTensor t : tensors) {
    if (bring) bring(t);
    for (size_t i = 0; i < t.slices.size(); ++i, ++piece) {
      const auto* data = static_cast<const std::byte*>(host_bytes(t.local));
      std::vector<char> box;
      if (t.slices.size() > 1) {
        const Shape& extent = pieces[piece].slice.extent;
        box.resize(static_cast<size_t>(bytes_of(pieces[piece])));
        copy_box({static_cast<const char*>(host_bytes(t.local)), t.local.shape(),
                  local_offset(t.slices, i)},
                 {box.data(), extent, minus(extent, extent)}, extent);
        data = reinterpret_cast<const std::byte*>(box.data());
      }
      file.write(piece, data);
    }
  }
}

std::string part_file(int rank) { return rank_file(rank) + ".part"; }

}  // namespace

Manifest write_part(const std::string& folder, int rank, int64_t step,
                    const std::vector<SavedTensor>& tensors, const WriteHooks& hooks) {
  Manifest part;
  if (tensors.empty()) return part;
  const std::string name = rank_file(rank), path = folder + "/" + name;
  part.pieces = list_pieces(name, tensors);
  std::vector<Hdf5Dataset> datasets;
  for (const Manifest::Piece& p : part.pieces) datasets.push_back({p.dataset, p.slice.extent});
  const std::vector<int64_t> positions = create_hdf5(path, datasets);
  for (size_t i = 0; i < positions.size(); ++i) part.pieces[i].position = positions[i];
  PartFile file(path, part.pieces, hooks.progress);
  fill_pieces(file, tensors, hooks.bring, part.pieces);
  reach(hooks.at, step, SaveMoment::kWritten, hooks.progress);
  part.files.push_back(file.finish());
  return part;
}

void write_described_part(const std::string& folder, int rank, int64_t step,
                          const std::vector<SavedTensor>& tensors, const WriteHooks& hooks) {
  const std::string text = parts_to_text(write_part(folder, rank, step, tensors, hooks));
  write_checked(folder + "/" + part_file(rank), text);
  reach(hooks.at, step, SaveMoment::kSynced);
}

void collect_parts(const std::string& folder, int ranks, Manifest& manifest) {
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string path = folder + "/" + part_file(rank);
    add_parts(content_of(path), manifest);
    std::filesystem::remove(path);
  }
}

void write_others(const std::string& folder, const OtherFiles& others, Manifest& manifest) {
  manifest.others.clear();
  for (const auto& [name, content] : others) {
    write_checked(folder + "/" + name, content);
    manifest.others.push_back(describe_file(folder, name));
  }
}

}  // namespace weft
