#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace weft {

// A file seen as memory, read only. The pages are the system's: reading a few rows of a large
// corpus costs a few pages. Empty files are allowed; pipes, devices and folders are refused. The
// file must not be shortened while it is mapped (the system then ends the process with SIGBUS).
class MappedFile {
 public:
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  const std::byte* data() const { return data_; }
  int64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

// Identifies a data file's content cheaply: XXH3 (64 bits, 16 hex digits) over its size (u64,
// little endian), its first and last mebibyte, and 64 blocks of 64 KiB spread evenly between. Files
// up to 6 MiB are hashed completely. Finds replaced, truncated and rewritten files, not single
// flipped bits in a large one: that is what `weft data check` is for.
std::string content_hash(const std::string& path);

}  // namespace weft
