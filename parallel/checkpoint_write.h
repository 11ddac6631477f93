#pragma once

#include <string>
#include <vector>

#include "core/manifest.h"
#include "parallel/checkpoint.h"

namespace weft {

// Writes the file of one rank with these tensors, syncs it and looks at it again; no other rank is
// needed for that. What it holds as a part of a manifest: one file and its slices; nothing for no
// tensors. Takes memory for one box of one tensor, and only where a tensor has several.
//
// `bring`, where there is one, fills in `local` of each tensor when it is its turn.
using BringTensor = std::function<void(SavedTensor&)>;
Manifest write_part(const std::string& folder, int rank, int64_t step,
                    const std::vector<SavedTensor>& tensors, const BringTensor& bring = {});

// The same, with the description left beside the file for the rank that publishes.
void write_described_part(const std::string& folder, int rank, int64_t step,
                          const std::vector<SavedTensor>& tensors);
// Adds the descriptions of all ranks to `manifest` and removes their files.
void collect_parts(const std::string& folder, int ranks, Manifest& manifest);

}  // namespace weft
