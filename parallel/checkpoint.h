#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/manifest.h"
#include "core/mapped_file.h"
#include "parallel/communicator.h"

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
// The manifest alone, checked in itself. ConfigError naming the damage.
FoundCheckpoint read_checkpoint(const std::string& path);
// The manifest, and sizes and hashes of all files with slices. ConfigError naming the damage.
FoundCheckpoint verify_checkpoint(const std::string& path);
// More than a reader needs: also the hash of every slice, the index, and that people with HDF5 find
// each slice where the manifest has it.
FoundCheckpoint verify_completely(const std::string& path);

// The newest checkpoint that is whole. Damaged ones are reported and passed over. Nothing when
// there is none; Error when there are some and none is whole.
using ReportDamage = std::function<void(const std::string&)>;
std::optional<FoundCheckpoint> newest_checkpoint(const std::string& folder,
                                                 const ReportDamage& report);
// Reads tensors from the slices that overlap them, whatever layout wrote these. Opens the files it
// needs, each once. ConfigError when a tensor is missing or has another shape.
class CheckpointReader {
 public:
  explicit CheckpointReader(const FoundCheckpoint& from);  // which must live longer

  // Throws what read() would throw, without reading: before memory is taken for a tensor.
  void expect(const std::string& tensor, const Shape& global) const;
  void read(const SavedTensor& into) { read(std::span(&into, 1)); }
  void read(std::span<const SavedTensor> into);  // on all cores

  // In two halves: every `ranks`-th file from `rank` on is read whole and compared with the manifest
  // (ConfigError naming the damage), its slices go where they belong; then the rest.
  struct Share {
    int rank = 0, ranks = 1;
    bool has(size_t file) const { return static_cast<int>(file) % ranks == rank; }
  };
  void read_and_check(Share share, std::span<const SavedTensor> into);
  void read_rest(Share share, std::span<const SavedTensor> into);
  size_t files_opened() const { return files_.size(); }

 private:
  struct Copy;  // a block that lies in a slice and in a tensor
  const std::vector<const Manifest::Piece*>& pieces_of(const std::string& tensor,
                                                       const Shape& global) const;
  const char* bytes_of_piece(const Manifest::Piece& piece);
  std::vector<Copy> list_copies(std::span<const SavedTensor> into) const;
  void run_copies(const std::vector<Copy>& copies);

  const FoundCheckpoint& from_;
  std::map<std::string, std::vector<const Manifest::Piece*>> pieces_;  // by tensor
  std::map<std::string, MappedFile> files_;                            // opened so far
};

void load_tensors(const FoundCheckpoint& from, const std::vector<SavedTensor>& into);

// The newest checkpoint that is whole, in memory, by all ranks together: each looks at its share of
// the files while it takes from them what it needs, so that most bytes are read once.
struct NewestLoad {
  std::string folder;
  ReportDamage report;  // of those that are passed over; by rank 0
  // What to fill from a checkpoint, known by its manifest. Throws when it is another run's.
  std::function<std::vector<SavedTensor>(const FoundCheckpoint&)> tensors;
};
std::optional<FoundCheckpoint> load_newest(Exec& exec, Communicator& world, const NewestLoad& load);

}  // namespace weft
