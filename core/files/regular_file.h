#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/error.h"

namespace weft {

// What the system says when a file cannot be opened or read: a missing file is another matter than
// one open file too many.
class OpenError : public ConfigError {
 public:
  OpenError(int reason, const std::string& text) : ConfigError(text), reason(reason) {}
  const int reason;  // errno; 0: it is there, and no regular file
};
class ReadError : public Error {
 public:
  ReadError(int reason, const std::string& text) : Error(text), reason(reason) {}
  const int reason;  // errno; 0: it has become shorter
};

// A file opened for reading. Pipes, devices and folders are refused.
class RegularFile {
 public:
  enum class Links : uint8_t { kFollow, kRefuse };
  explicit RegularFile(std::string path, Links links = Links::kFollow);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  const std::string& path() const { return path_; }
  int descriptor() const { return fd_; }
  int64_t size() const { return size_; }  // when it was opened

  // All of `into`, from byte `at` on; from any thread. ReadError where the file ends before.
  void read(int64_t at, std::span<std::byte> into) const;

 private:
  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

// All bytes of a small one.
std::string content_of(const RegularFile& file);
inline std::string content_of(const std::string& path) { return content_of(RegularFile(path)); }

}  // namespace weft
