#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "parallel/checkpoint/checkpoint.h"

namespace weft {

class CheckedFile;

// Reads tensors from the slices that overlap them, whatever layout wrote these. Opens the files it
// needs. Every block of a file is compared with the manifest when something is first taken from it:
// what arrives in a tensor was written so. On all cores.
class CheckpointReader {
 public:
  // `from` must live longer. `progress` is called now and then by the thread that reads.
  explicit CheckpointReader(const FoundCheckpoint& from, std::function<void()> progress = {});
  ~CheckpointReader();

  Shape shape_of(const std::string& tensor) const;  // ConfigError when there is no such tensor
  // Throws what read() would throw, without reading: before memory is taken for a tensor.
  // ConfigError when there is no such tensor, or one of another shape.
  void expect(const std::string& tensor, const Shape& global) const;

  // Damage where bytes are missing or others.
  void read(const SavedTensor& into) { read(std::span(&into, 1)); }
  void read(std::span<const SavedTensor> into);

  // The same, and compares what nobody takes as well: of all blocks of all files (but the index)
  // every rank of `ranks` looks at its share.
  struct Share {
    int rank = 0, ranks = 1;
  };
  void read_and_check(Share share, std::span<const SavedTensor> into);

  size_t files_opened() const { return compared_.size(); }

 private:
  struct Worker;
  struct Copy;                               // a box that lies in a slice and in a tensor
  using Block = std::pair<size_t, int64_t>;  // file, number in it
  using Blocks = std::map<Block, std::vector<const Copy*>>;  // what is copied from them
  struct OpenFile {
    std::shared_ptr<const CheckedFile> file;
    std::vector<char>* compared;  // by block
  };
  const std::vector<const Manifest::Piece*>& pieces_of(const std::string& tensor) const;
  std::vector<Copy> list_copies(std::span<const SavedTensor> into) const;
  Blocks list_blocks(const std::vector<Copy>& copies) const;
  void run(const Blocks& blocks);
  OpenFile open_file(size_t number);

  const FoundCheckpoint& from_;
  const std::function<void()> progress_;
  std::vector<const Manifest::File*> files_;                           // with slices, then others
  std::map<std::string, size_t> file_of_;                              // by name, in `files_`
  std::map<std::string, std::vector<const Manifest::Piece*>> pieces_;  // by tensor

  std::mutex mutex_;
  std::map<size_t, std::weak_ptr<const CheckedFile>> open_;  // as long as somebody reads them
  std::map<size_t, std::vector<char>> compared_;             // of all that were ever opened
};

}  // namespace weft
