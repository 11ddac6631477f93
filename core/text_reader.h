#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace weft {

// A text file, plain or compressed with gzip (seen from its content), line by line or whole. Memory
// is bounded by the line, respectively by `kLongest` bytes for a whole file.
class TextReader {
 public:
  static constexpr int64_t kLongest = int64_t{1} << 30;

  explicit TextReader(const std::string& path);
  ~TextReader();
  TextReader(const TextReader&) = delete;
  TextReader& operator=(const TextReader&) = delete;

  std::optional<std::string> line();  // without its end; nothing when there is none
  std::string rest();
  int64_t lines() const { return lines_; }  // handed out so far

 private:
  bool fill();  // false at the end of the file

  struct Stream;
  std::string path_;
  std::unique_ptr<Stream> stream_;
  std::string buffer_;
  size_t at_ = 0;
  int64_t lines_ = 0;
};

}  // namespace weft
