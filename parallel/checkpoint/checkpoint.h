#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/files/manifest.h"
#include "core/memory/exec.h"
#include "parallel/comm/host_group.h"

// Checkpoints: folder/step-000000500/ with one HDF5 file per writing rank, holding the slices it
// owns, and a manifest. How they are written: checkpoint_saver.h. Readers go by the manifest, which
// says where the bytes of every slice stand, and never by what the files say of themselves.
namespace weft {

// A tensor as this rank holds it: f32, the boxes of its parameter stacked as in the parameter
// itself. Several entries may hold other boxes of one tensor.
struct SavedTensor {
  std::string name;  // "parameters/embed.weight", "adam/m/embed.weight"
  Shape global;
  std::vector<Slice> slices;
  Tensor local;
};

// Small files that go with a model: name -> content.
using OtherFiles = std::map<std::string, std::string>;

// `state` carries everything but files and pieces. Afterwards all but the newest `keep` are removed
// (keep 0: none is). Returns the published folder. Throws Error when the disk fails or has no room;
// what was there before stays as it was.
std::string save_checkpoint(const std::string& folder, Manifest state,
                            const std::vector<SavedTensor>& tensors, int64_t keep,
                            OtherFiles others = {});
// The same by all ranks together: each writes the tensors it answers for into a file of its own, on
// a file system that all of them see. `state` and `others` are rank 0's.
std::string save_checkpoint(Exec& exec, HostGroup& world, const std::string& folder, Manifest state,
                            const std::vector<SavedTensor>& tensors, int64_t keep,
                            OtherFiles others = {});

struct FoundCheckpoint {
  std::string path;
  Manifest manifest;
};
// The manifest alone, checked in itself. Throws Damage.
FoundCheckpoint read_checkpoint(const std::string& path);
// The manifest, and all bytes of all files but the index. Throws Damage.
FoundCheckpoint verify_checkpoint(const std::string& path);
// More than a reader needs: also the hash of every slice, the index, and that people with HDF5 find
// each slice where the manifest has it.
FoundCheckpoint verify_completely(const std::string& path);

// Its other files, compared with the manifest. Throws Damage.
OtherFiles others_of(const FoundCheckpoint& found);

// Fills tensors from the slices that overlap them, whatever layout wrote these
// (checkpoint_reader.h). ConfigError when one is missing or has another shape; Damage. `progress`
// is called now and then.
void load_tensors(const FoundCheckpoint& from, const std::vector<SavedTensor>& into,
                  const std::function<void()>& progress = {});

// What `use` says of a damaged checkpoint: text of Damage, or that the system has lost bytes of it;
// empty when it says nothing. All else (no right to read, too many open files) is no word about the
// checkpoint, and passes.
std::string damage_of(const std::function<void()>& use);

// Gives `use` one checkpoint after the other, the newest first, until it can use one: Damage that
// it meets on any rank is reported (by rank 0) and sends all of them to the one before. Other
// exceptions pass. Returns what was used; nothing for no paths; Error when no one is whole. Rank
// 0's paths count.
using ReportDamage = std::function<void(const std::string&)>;
using UseCheckpoint = std::function<void(const FoundCheckpoint&)>;
std::optional<FoundCheckpoint> use_newest(HostGroup& world,
                                          const std::vector<std::string>& oldest_first,
                                          const ReportDamage& report, const UseCheckpoint& use);

// The newest checkpoint of a folder in memory, by all ranks together. All of it is compared with
// its manifest, also what no rank takes: each looks at a share of that.
struct NewestLoad {
  std::string folder;
  ReportDamage report;
  // What to fill from a checkpoint, known by its manifest. Throws when it is another run's.
  std::function<std::vector<SavedTensor>(const FoundCheckpoint&)> tensors;
  std::function<void()> progress = {};
};
std::optional<FoundCheckpoint> load_newest(HostGroup& world, const NewestLoad& load);

}  // namespace weft
