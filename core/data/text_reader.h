#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/files/byte_stream.h"

namespace weft {

// A text file, plain or packed with gzip or zstd, line by line or whole. Memory is bounded by the
// line, respectively by `kLongest` bytes for a whole file.
class TextReader {
 public:
  static constexpr int64_t kLongest = int64_t{256} << 20;

  explicit TextReader(const std::string& path);

  std::optional<std::string> line();  // without its end; nothing when there is none
  std::string rest();
  int64_t lines() const { return lines_; }  // handed out so far

 private:
  bool fill();  // false at the end of the file

  std::string path_;
  ByteStream stream_;
  std::string buffer_;
  size_t at_ = 0;
  int64_t lines_ = 0;
};

}  // namespace weft
