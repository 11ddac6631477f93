#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/files/manifest.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/save_moment.h"

namespace weft {

using BringTensor = std::function<void(SavedTensor&)>;
struct WriteHooks {
  BringTensor bring = {};      // fills in `local` of a tensor when it is its turn
  SaveProgress progress = {};  // called again and again while bytes are written
  SaveHook at = {};
};

// Writes the file of one rank with these tensors, syncs it and looks at it again; no other rank is
// needed for that. What it holds as a part of a manifest: one file and its slices; nothing for no
// tensors. Takes memory for one box of one tensor, and only where a tensor has several.
Manifest write_part(const std::string& folder, int rank, int64_t step,
                    const std::vector<SavedTensor>& tensors, const WriteHooks& hooks = {});

// The same, with the description left beside the file for the rank that publishes.
void write_described_part(const std::string& folder, int rank, int64_t step,
                          const std::vector<SavedTensor>& tensors, const WriteHooks& hooks = {});
// Adds the descriptions of all ranks to `manifest` and removes their files.
void collect_parts(const std::string& folder, int ranks, Manifest& manifest);

// The other files of a checkpoint, synced and described in `manifest`.
void write_others(const std::string& folder, const OtherFiles& others, Manifest& manifest);

}  // namespace weft
