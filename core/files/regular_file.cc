#include "core/files/regular_file.h"

#include <fcntl.h>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/files/system_calls.h"

namespace weft {

RegularFile::RegularFile(std::string path, Links links) : path_(std::move(path)) {
  // Not blocking: opening a pipe would otherwise wait for a writer before it can be refused.
  const int follow = links == Links::kFollow ? 0 : O_NOFOLLOW;
  fd_ = sys::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | follow);
  if (fd_ < 0) {
    const int why = errno;
    if (follow != 0 && why == ELOOP) {
      throw OpenError(why, fmt::format("{}: is a link that leads elsewhere; refused", path_));
    }
    throw OpenError(why, fmt::format("cannot open {}: {}", path_, std::strerror(why)));
  }
  struct stat info {};
  const bool known = sys::stat(fd_, &info) == 0;
  const int why = errno;
  if (known && S_ISREG(info.st_mode)) {
    size_ = info.st_size;
    return;
  }
  sys::close(fd_);
  if (!known) throw Error("cannot stat {}: {}", path_, std::strerror(why));
  throw OpenError(0, fmt::format("{} is not a regular file", path_));
}

RegularFile::~RegularFile() { sys::close(fd_); }

void RegularFile::read(int64_t at, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t done = sys::pread(fd_, into.data(), into.size(), at);
    const int why = errno;
    if (done < 0) {
      throw ReadError(why, fmt::format("cannot read {}: {}", path_, std::strerror(why)));
    }
    if (done == 0) throw ReadError(0, fmt::format("{} became shorter while it was read", path_));
    at += done;
    into = into.subspan(static_cast<size_t>(done));
  }
}

std::string content_of(const RegularFile& file) {
  std::string content(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(content)));
  return content;
}

}  // namespace weft
