#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/files/manifest.h"
#include "parallel/checkpoint/save_moment.h"

// The folder of a run's checkpoints, as it is at every moment of a save:
//
//   step-000000500            published: complete, on the disk, checked
//   .writing-step-000001000   being written; never looked into
//   .replaced-step-000000500  the one before of the same step: a checkpoint while there is no other
//                             of that step; only where names cannot be exchanged
//   .removing-step-000000100  no longer a checkpoint, about to vanish
//   damaged-step-000000900    found damaged at a resume and set aside
//
// What carries a step's name is whole from the moment it does until it does no longer, also when
// the power goes: files are synced before the manifest that names them is written, the manifest
// before the rename that publishes all of it; a checkpoint loses its name, and that is synced,
// before it loses a file. Other names, such as step-000000500-keep, are the user's.
namespace weft {

inline constexpr const char* kCheckpoints = "checkpoints";  // the folder itself, in that of a run
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kIndexName = "index.h5";

// Room for what stands beside the tensors: HDF5's own, manifest, index.
inline constexpr int64_t kCheckpointExtra = 16 << 20;

// The step that a published checkpoint of this path is named by; nothing for a user's own name.
std::optional<int64_t> step_of_path(const std::string& path);
std::string checkpoint_path(const std::string& folder, int64_t step);
std::string writing_path(const std::string& folder, int64_t step);
std::string rank_file(int rank);  // "rank-00003.h5"

// Published checkpoints, oldest first. Error when the folder is there and cannot be read.
std::vector<std::string> published_checkpoints(const std::string& folder);

// Bytes that the disk of a folder (or of the nearest folder above that exists) has left for us.
// Error where the disk does not say.
int64_t room_for(const std::string& folder);

// Removes what saves that were killed left behind. Their names, as far as they could be removed.
std::vector<std::string> remove_unfinished(const std::string& folder);

// Makes the folder that all ranks write into. What earlier saves left unfinished is removed. Error,
// with the sizes, when the disk has no room for `bytes`.
std::string begin_writing(const std::string& folder, int64_t step, int64_t bytes,
                          const SaveHook& at = {});
void abandon_writing(const std::string& folder, int64_t step);

// Index, manifest and the rename; afterwards all but the newest `keep` up to this step go (0:
// none). Error when the checkpoint could not be published.
struct Published {
  std::string path;
  std::string left;  // why something that is no longer needed could not be removed
};
Published publish_checkpoint(const std::string& folder, Manifest manifest, int64_t keep,
                             const SaveHook& at = {});

// Checkpoints after `step`, which could not be used, become damaged-step-N.
void set_aside_after(const std::string& folder, int64_t step);
// All of them, with their folder, make way for a run that starts anew. Returns where they are now;
// empty when there were none.
std::string set_aside_all(const std::string& folder);

}  // namespace weft
