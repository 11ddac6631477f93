#include "core/memory/backing.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/base/error.h"

namespace weft {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

[[noreturn]] void refuse(int64_t bytes) {
  throw Error("out of memory: the system refused {} more bytes", bytes);
}

}  // namespace

void* HostBacking::reserve(int64_t bytes) {
  void* at = mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) refuse(bytes);
  if (bytes >= kHugePage) madvise(at, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a hint only
  return at;
}

void HostBacking::commit(void* at, int64_t bytes) {
  if (mprotect(at, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE) != 0) refuse(bytes);
}

void HostBacking::release(void* at, int64_t bytes) { munmap(at, static_cast<size_t>(bytes)); }

bool HostBacking::discard(void* at, int64_t bytes) {
  return madvise(at, static_cast<size_t>(bytes), MADV_DONTNEED) == 0;
}

void HostBacking::zero(Queue*, void* at, int64_t bytes) {
  std::memset(at, 0, static_cast<size_t>(bytes));
}

void HostBacking::copy(Queue*, const void* from, void* to, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

HostBacking& host_backing() {
  static HostBacking backing;  // has no state
  return backing;
}

void* AddressBacking::reserve(int64_t bytes) {
  void* at = HostBacking::reserve(bytes);
  const char* first = static_cast<const char*>(at);
  const std::lock_guard lock(mutex_);
  ranges_.emplace_back(first, first + bytes);
  return at;
}

void AddressBacking::release(void* at, int64_t bytes) {
  HostBacking::release(at, bytes);
  const std::lock_guard lock(mutex_);
  std::erase_if(ranges_, [&](const auto& range) { return range.first == at; });
}

void AddressBacking::copy(Queue* queue, const void* from, void* to, int64_t bytes) {
  const auto here = [&](const void* address) {
    const std::lock_guard lock(mutex_);
    return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
      return address >= range.first && address < range.second;
    });
  };
  if (!here(from) && !here(to)) HostBacking::copy(queue, from, to, bytes);
}

void GuardedBacking::commit(void* at, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  ranges_.push_back({at, bytes});
  if (depth_ > 0) HostBacking::commit(at, bytes);
}

void GuardedBacking::release(void* at, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  char* const begin = static_cast<char*>(at);
  std::erase_if(ranges_, [&](const Range& r) {
    return static_cast<char*>(r.at) >= begin && static_cast<char*>(r.at) < begin + bytes;
  });
  HostBacking::release(at, bytes);
}

void GuardedBacking::zero(Queue* queue, void* at, int64_t bytes) {
  open();
  HostBacking::zero(queue, at, bytes);
  close();
}

void GuardedBacking::copy(Queue* queue, const void* from, void* to, int64_t bytes) {
  open();
  HostBacking::copy(queue, from, to, bytes);
  close();
}

void GuardedBacking::protect(int protection) {
  for (const Range& r : ranges_) {
    WEFT_CHECK(mprotect(r.at, static_cast<size_t>(r.bytes), protection) == 0,
               "cannot protect {} bytes", r.bytes);
  }
}

void GuardedBacking::open() {
  const std::lock_guard lock(mutex_);
  if (depth_++ == 0) protect(PROT_READ | PROT_WRITE);
}

void GuardedBacking::close() {
  const std::lock_guard lock(mutex_);
  if (--depth_ == 0) protect(PROT_NONE);
}

}  // namespace weft
