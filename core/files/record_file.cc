#include "core/files/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace weft {

RecordFile::RecordFile(std::string path, Content content) : path_(std::move(path)) {
  const int fresh = content == Content::kNew ? O_TRUNC : 0;
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | fresh, 0666);
  if (fd_ < 0) throw Error("{}: cannot write: {}", path_, std::strerror(errno));
  struct stat info {};
  if (fstat(fd_, &info) == 0) size_ = info.st_size;
}

RecordFile::~RecordFile() { close(fd_); }

bool RecordFile::append(std::string_view record) {
  int64_t at = size_;
  while (!record.empty()) {
    const ssize_t done = pwrite(fd_, record.data(), record.size(), at);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      why_not_ = std::strerror(errno);
      // The start of the record may be there. Where it cannot be cut off (never seen), the next
      // record is written over it.
      if (at > size_ && ftruncate(fd_, size_) != 0) why_not_ += " (and its start stays)";
      return false;
    }
    record.remove_prefix(static_cast<size_t>(done));
    at += done;
  }
  size_ = at;
  return true;
}

}  // namespace weft
