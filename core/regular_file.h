#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace weft {

// A file opened for reading. Pipes, devices and folders are refused.
class RegularFile {
 public:
  explicit RegularFile(std::string path);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  const std::string& path() const { return path_; }
  int descriptor() const { return fd_; }
  int64_t size() const { return size_; }  // when it was opened

  // All of `into`, from byte `at` on. Error where the file has become shorter than that.
  void read(int64_t at, std::span<std::byte> into) const;

 private:
  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

// Reads a file from front to back as fast as the disk gives it: threads of their own read some
// blocks ahead, `use` gets them one after the other.
using UseBlock = std::function<void(int64_t at, std::span<const std::byte> block)>;
void read_through(const RegularFile& file, const UseBlock& use);

}  // namespace weft
