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

}  // namespace weft
