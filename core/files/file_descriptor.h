#pragma once

#include <utility>

#include "core/files/system_calls.h"

namespace weft {

// Owns an open file; -1: none. Where bytes were written, close() says whether they arrived.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) sys::close(fd_);
  }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  int close() { return sys::close(release()); }

 private:
  int fd_;
};

}  // namespace weft
