#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/files/manifest.h"
#include "core/files/regular_file.h"

namespace weft {

// The file of one rank while it is filled in: laid out by HDF5, the bytes of its slices written by
// us. A thread follows the writer from front to back, reads what now stands in the file and hashes
// it, slice by slice and block by block: when the last byte is written, all of it has been looked
// at. Beside the caller's memory it takes one block.
class PartFile {
 public:
  // `pieces`: all slices of the file, with their positions. `progress` is called after every block.
  PartFile(const std::string& path, std::vector<Manifest::Piece>& pieces,
           std::function<void()> progress);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  // Writes and hashes one slice; in any order, each once.
  void write(size_t piece, const std::byte* data);
  // Syncs; Error where the file does not hold what was written. Size and hashes of the whole file.
  Manifest::File finish();

 private:
  void write_block(int64_t position, const std::byte* data, int64_t bytes);
  void written(size_t piece, int64_t bytes);
  void follow();
  int64_t wait_for_block(int64_t at);
  [[noreturn]] void fail(const char* what) const;

  std::vector<Manifest::Piece>& pieces_;
  const std::function<void()> progress_;
  const RegularFile file_;          // as a reader sees it
  int fd_ = -1;                     // as the writer does
  int64_t begun_ = 0, hinted_ = 0;  // bytes on their way to the disk, since the last hint

  std::vector<size_t> order_;  // pieces with bytes, by position
  std::mutex mutex_;           // of the following
  std::condition_variable more_;
  std::vector<bool> complete_;  // by piece
  size_t first_ = 0;            // in `order_`: the first that is not complete
  int64_t ready_ = 0;           // bytes from the front that may be read
  bool stop_ = false;

  std::vector<std::string> found_;  // hashes of the slices in the file, by piece
  std::string blocks_;              // those of the file's blocks
  std::exception_ptr failure_;      // of the follower
  std::thread follower_;
};

}  // namespace weft
