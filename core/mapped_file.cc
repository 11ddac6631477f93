#include "core/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/error.h"
#include "core/regular_file.h"

namespace weft {

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const RegularFile file(path_);
  size_ = file.size();
  if (size_ == 0) return;
  void* map = mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED, file.descriptor(), 0);
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

std::string content_hash(const std::string& path) {
  constexpr int64_t kEnd = 1 << 20, kBlock = 64 << 10, kBlocks = 64;
  const MappedFile file(path);
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  WEFT_CHECK(state != nullptr, "no memory for a hash state");
  XXH3_64bits_reset(state.get());
  const auto add = [&](int64_t begin, int64_t count) {
    XXH3_64bits_update(state.get(), file.data() + begin, static_cast<size_t>(count));
  };
  const auto size = static_cast<uint64_t>(file.size());
  XXH3_64bits_update(state.get(), &size, sizeof size);
  const int64_t between = file.size() - 2 * kEnd;
  if (between <= kBlock * kBlocks) {
    if (file.size() > 0) add(0, file.size());
  } else {
    add(0, kEnd);
    for (int64_t b = 0; b < kBlocks; ++b)
      add(kEnd + b * ((between - kBlock) / (kBlocks - 1)), kBlock);
    add(file.size() - kEnd, kEnd);
  }
  return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
}

}  // namespace weft
