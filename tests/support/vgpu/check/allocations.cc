#include "tests/support/vgpu/check/allocations.h"

#include <sys/mman.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "tests/support/vgpu/check/shadow.h"

namespace vgpu {

template <class T>
SparseArray<T>::SparseArray(uint64_t count) {
  void* at = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<T*>(at);
}

template <class T>
void SparseArray<T>::clear(uint64_t first, uint64_t count) {
  constexpr uint64_t kPage = 4096;
  auto* begin = reinterpret_cast<std::byte*>(data_ + first);
  auto* end = reinterpret_cast<std::byte*>(data_ + first + count);
  auto* whole =
      reinterpret_cast<std::byte*>((reinterpret_cast<uint64_t>(begin) + kPage - 1) / kPage * kPage);
  auto* beyond = reinterpret_cast<std::byte*>(reinterpret_cast<uint64_t>(end) / kPage * kPage);
  if (whole >= beyond) {
    std::memset(begin, 0, static_cast<size_t>(end - begin));
    return;
  }
  std::memset(begin, 0, static_cast<size_t>(whole - begin));
  madvise(whole, static_cast<size_t>(beyond - whole), MADV_DONTNEED);
  std::memset(beyond, 0, static_cast<size_t>(end - beyond));
}

template class SparseArray<uint16_t>;
template class SparseArray<Word>;
template class SparseArray<Half>;

Allocations::Allocations(uint64_t base, uint64_t capacity)
    : base_(base), capacity_(capacity), live_bytes_(capacity / kGranule + 1) {}

void Allocations::mark(uint64_t offset, uint64_t bytes, bool live) {
  const uint64_t first = offset / kGranule, whole = bytes / kGranule;
  if (!live) {
    live_bytes_.clear(first, (bytes + kGranule - 1) / kGranule);
    return;
  }
  for (uint64_t i = 0; i < whole; ++i) live_bytes_[first + i] = kGranule;
  if (bytes % kGranule != 0) live_bytes_[first + whole] = static_cast<uint16_t>(bytes % kGranule);
}

void Allocations::add(const AllocationBody& allocation) {
  // Records of freed allocations are dropped when their addresses are reused.
  const auto beyond = by_address_.lower_bound(allocation.at + allocation.bytes);
  auto first = by_address_.lower_bound(allocation.at);
  if (first != by_address_.begin()) {
    const auto before = std::prev(first);
    if (before->first + before->second.bytes > allocation.at) first = before;
  }
  by_address_.erase(first, beyond);
  by_address_[allocation.at] = {allocation.bytes, allocation.number, allocation.by, ""};
  mark(allocation.at - base_, allocation.bytes, true);
}

void Allocations::remove(uint64_t at, const std::string& by) {
  const auto found = by_address_.find(at);
  if (found == by_address_.end()) return;
  found->second.freed_by = by;
  mark(at - base_, found->second.bytes, false);
}

bool Allocations::live_beyond(uint64_t offset, uint64_t bytes) const {
  const uint64_t here = kGranule - offset % kGranule;
  return live_bytes_[offset / kGranule] == kGranule && offset + bytes <= capacity_ &&
         live(offset + here, bytes - here);
}

bool Allocations::live_range(uint64_t offset, uint64_t bytes) const {
  if (offset > capacity_ || bytes > capacity_ - offset) return false;
  const auto next = by_address_.upper_bound(base_ + offset);
  if (next == by_address_.begin()) return false;
  const auto& [at, allocation] = *std::prev(next);
  return allocation.freed_by.empty() && base_ + offset + bytes <= at + allocation.bytes;
}

std::string Allocations::describe(uint64_t address) const {
  const auto next = by_address_.upper_bound(address);
  if (next == by_address_.begin()) return "nothing was allocated there";
  const auto& [at, a] = *std::prev(next);
  const std::string what =
      fmt::format("the {} bytes of allocation {} ({})", a.bytes, a.number, a.by);
  if (address >= at + a.bytes) {
    return fmt::format("{} bytes behind the end of {}", address - at - a.bytes, what);
  }
  const std::string freed = a.freed_by.empty() ? "" : ", freed by " + a.freed_by;
  return fmt::format("byte {} of {}{}", address - at, what, freed);
}

}  // namespace vgpu
