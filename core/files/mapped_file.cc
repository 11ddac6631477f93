#include "core/files/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/files/regular_file.h"

namespace weft {

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const RegularFile file(path_);
  size_ = file.size();
  if (size_ == 0) return;
  void* map =
      mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (map == MAP_FAILED) throw Error("cannot map {}: {}", path_, std::strerror(errno));
  data_ = static_cast<const std::byte*>(map);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace weft
