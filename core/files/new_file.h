#pragma once

#include <cstdint>
#include <string>

namespace weft {

// The bytes of a file, or the names in a folder, are on the disk afterwards. Error where they
// cannot.
void sync_path(const std::string& path);

// A file that appears under its name complete or not at all: written beside it, synced to the disk,
// then renamed over. Left unfinished (an exception on the way), it removes what it wrote.
class NewFile {
 public:
  explicit NewFile(std::string path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, int64_t bytes);  // buffered, large writes go straight through
  void finish();
  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  void write_through(const char* data, int64_t bytes);

  std::string path_, beside_;
  std::string buffer_;
  int fd_ = -1;
  int64_t size_ = 0;
};

// A small new file with this content, read again once it stands there.
void write_checked(const std::string& path, const std::string& text);

// Makes renames and removals in the folder of `path` durable.
void sync_folder_of(const std::string& path);

}  // namespace weft
