#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace weft {

// The bytes of a file in order, unpacked when it was packed with gzip or zstd (seen from its
// content). Pipes work too, plain or packed with gzip. Memory does not depend on the file: windows
// of zstd above 128 MB are refused.
class ByteStream {
 public:
  explicit ByteStream(const std::string& path);  // ConfigError when it cannot be opened
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // Up to `size` bytes; fewer only at the end. ConfigError with the path for a damaged file.
  size_t read(char* to, size_t size);

  class Source {
   public:
    virtual ~Source() = default;
    virtual size_t read(char* to, size_t size) = 0;
  };

 private:
  std::unique_ptr<Source> source_;
};

}  // namespace weft
