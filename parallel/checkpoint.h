#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/manifest.h"
#include "parallel/communicator.h"

// Checkpoints: folder/step-000000500/ with one HDF5 file per writing rank, holding the slices it
// owns, and a manifest. Written beside (".writing-..."), synced, hashed, the manifest last, then
// published by one rename: what carries a step's name is complete, and the one before stays until
// then.
namespace weft {

// A tensor as this rank holds it: f32, the boxes of its parameter stacked as in the parameter
// itself. Several entries may hold other boxes of one tensor.
struct SavedTensor {
  std::string name;  // "parameters/embed.weight", "adam/m/embed.weight"
  Shape global;
  std::vector<Slice> slices;
  Tensor local;
};

// `state` carries everything but files and pieces. Afterwards all but the newest `keep` are removed
// (keep 0: none is). Returns the published folder. Throws Error when the disk fails or has no room;
// what was there before stays as it was.
std::string save_checkpoint(const std::string& folder, Manifest state,
                            const std::vector<SavedTensor>& tensors, int64_t keep);
// The same by all ranks together: each writes the tensors it answers for into a file of its own, on
// a file system that all of them see. `state` is rank 0's.
std::string save_checkpoint(Exec& exec, Communicator& world, const std::string& folder,
                            Manifest state, const std::vector<SavedTensor>& tensors, int64_t keep);

struct FoundCheckpoint {
  std::string path;
  Manifest manifest;
};
// Checks manifest, sizes and hashes of one checkpoint completely. Throws ConfigError naming the
// damage.
FoundCheckpoint verify_checkpoint(const std::string& path);
// The manifest alone, for ranks whose first one has verified it.
FoundCheckpoint read_checkpoint(const std::string& path);

// The newest checkpoint that is whole. Damaged ones are reported and passed over. Nothing when
// there is none; Error when there are some and none is whole.
std::optional<FoundCheckpoint> newest_checkpoint(
    const std::string& folder, const std::function<void(const std::string&)>& report);

// Fills every tensor from the slices that overlap it, whatever layout wrote them. Throws
// ConfigError when a tensor is missing or has another shape.
void load_tensors(const FoundCheckpoint& from, const std::vector<SavedTensor>& into);

}  // namespace weft
