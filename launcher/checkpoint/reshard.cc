#include "launcher/checkpoint/reshard.h"

#include <map>

#include "parallel/checkpoint/boxes.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/checkpoint/checkpoint_write.h"
#include "parallel/layout/layout.h"

namespace weft {
namespace {

// Rows `part` of `parts` of a tensor; of numbers without dims the first part has all.
Slice rows_of(const Shape& global, int part, int parts) {
  Slice slice = whole_of(global);
  if (global.dims() == 0) return slice;
  const IndexRange rows = even_part(global[0], part, parts);
  slice.offset[0] = rows.begin;
  slice.extent[0] = rows.size();
  return slice;
}

std::vector<SavedTensor> tensors_of_part(const std::map<std::string, Shape>& tensors, int part,
                                         int parts) {
  std::vector<SavedTensor> out;
  for (const auto& [name, global] : tensors) {
    const Slice rows = rows_of(global, part, parts);
    if (part > 0 && (global.dims() == 0 || rows.extent.elements() == 0)) continue;
    out.push_back({name, global, {rows}, {}});
  }
  return out;
}

}  // namespace

std::string reshard(const FoundCheckpoint& from, const Resharding& how,
                    const std::string& checkpoints) {
  std::map<std::string, Shape> tensors;
  int64_t bytes = 0;
  for (const Manifest::Piece& p : from.manifest.pieces) {
    if (how.weights_only && !p.tensor.starts_with("parameters/")) continue;
    tensors[p.tensor] = p.global;
    bytes += bytes_of(p);
  }
  Manifest manifest = from.manifest;
  manifest.files.clear();
  manifest.pieces.clear();
  const OtherFiles others = others_of(from);
  for (const auto& [name, content] : others) bytes += std::ssize(content);
  Ledger ledger;
  Pool pool(ledger);
  CheckpointReader reader(from);
  const BringTensor bring = [&](SavedTensor& t) {
    t.local = Tensor::empty(pool, t.slices[0].extent, DType::kF32);
    reader.read(t);
  };
  const std::string beside = begin_writing(checkpoints, manifest.step, bytes);
  try {
    for (int part = 0; part < how.files; ++part) {
      const Manifest written = write_part(
          beside, part, manifest.step, tensors_of_part(tensors, part, how.files), {.bring = bring});
      manifest.files.insert(manifest.files.end(), written.files.begin(), written.files.end());
      manifest.pieces.insert(manifest.pieces.end(), written.pieces.begin(), written.pieces.end());
    }
    write_others(beside, others, manifest);
    return publish_checkpoint(checkpoints, manifest, 0).path;
  } catch (...) {
    abandon_writing(checkpoints, manifest.step);
    throw;
  }
}

}  // namespace weft
