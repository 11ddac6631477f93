#include "core/files/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/base/error.h"
#include "core/files/file_descriptor.h"
#include "core/files/regular_file.h"

namespace weft {
namespace {

constexpr int64_t kBuffer = 1 << 20;

}  // namespace

void sync_path(const std::string& path) {
  FileDescriptor file(sys::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  bool synced = file.get() >= 0 && sys::sync(file.get()) == 0;
  int why = errno;
  if (file.get() >= 0 && file.close() != 0 && synced) {
    synced = false;
    why = errno;
  }
  // Some file systems cannot sync folders and say so; there a rename is as durable as it gets.
  const bool cannot = why == EINVAL && std::filesystem::is_directory(path);
  if (!synced && !cannot) {
    throw Error("{}: cannot be synced to the disk: {}", path, std::strerror(why));
  }
}

void sync_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  sync_path(folder.empty() ? "." : folder.string());
}

NewFile::NewFile(std::string path) : path_(std::move(path)) {
  beside_ = fmt::format("{}.{}.tmp", path_, getpid());
  fd_ = sys::open(beside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd_ < 0) throw ConfigError("cannot write {}: {}", path_, std::strerror(errno));
  buffer_.reserve(kBuffer);
}

NewFile::~NewFile() {
  if (fd_ < 0) return;
  sys::close(fd_);
  sys::remove(beside_.c_str());
}

void NewFile::write(const void* data, int64_t bytes) {
  WEFT_CHECK(fd_ >= 0, "{} is written to after it was finished", path_);
  size_ += bytes;
  if (static_cast<int64_t>(buffer_.size()) + bytes > kBuffer) {
    write_through(buffer_.data(), static_cast<int64_t>(buffer_.size()));
    buffer_.clear();
  }
  if (bytes >= kBuffer) {
    write_through(static_cast<const char*>(data), bytes);
  } else {
    buffer_.append(static_cast<const char*>(data), static_cast<size_t>(bytes));
  }
}

void NewFile::write_through(const char* data, int64_t bytes) {
  while (bytes > 0) {
    const ssize_t done = sys::write(fd_, data, static_cast<size_t>(bytes));
    if (done < 0) throw Error("cannot write {}: {}", path_, std::strerror(errno));
    data += done;
    bytes -= done;
  }
}

void NewFile::finish() {
  WEFT_CHECK(fd_ >= 0, "{} is finished twice", path_);
  write_through(buffer_.data(), static_cast<int64_t>(buffer_.size()));
  buffer_.clear();
  if (sys::sync(fd_) != 0) throw Error("cannot sync {}: {}", path_, std::strerror(errno));
  if (sys::close(std::exchange(fd_, -1)) != 0 || sys::rename(beside_.c_str(), path_.c_str()) != 0) {
    const int why = errno;
    sys::remove(beside_.c_str());
    throw Error("cannot put {} in place: {}", path_, std::strerror(why));
  }
  sync_folder_of(path_);
}

void write_checked(const std::string& path, const std::string& text) {
  NewFile file(path);
  file.write(text.data(), std::ssize(text));
  file.finish();
  if (content_of(path) != text) throw Error("{}: reads back other bytes than were written", path);
}

}  // namespace weft
