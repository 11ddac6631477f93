#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

// A file that grows by whole records (lines, events). One that does not fit, because the disk is
// full or broken, is left out and nothing of it stays: readers never meet half a record.
class RecordFile {
 public:
  enum class Content { kNew, kKeep };             // starts empty, or behind what is there
  RecordFile(std::string path, Content content);  // Error when it cannot be opened
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  // With the system when it returns true. False: left out; why_not() says why.
  bool append(std::string_view record);
  const std::string& path() const { return path_; }
  const std::string& why_not() const { return why_not_; }

 private:
  std::string path_, why_not_;
  int fd_ = -1;
  int64_t size_ = 0;  // of whole records
};

}  // namespace weft
