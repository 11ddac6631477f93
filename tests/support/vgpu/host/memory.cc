#include "tests/support/vgpu/host/memory.h"

#include <algorithm>

#include "tests/support/vgpu/wire/layout.h"

namespace vgpu {
namespace {

uint64_t rounded_up(uint64_t x, uint64_t to) { return (x + to - 1) / to * to; }

}  // namespace

Heap::Heap(uint64_t base, uint64_t address_space, uint64_t capacity, uint64_t alignment)
    : alignment_(alignment),
      capacity_(capacity),
      high_water_(base),
      free_{{base + alignment, address_space - alignment}} {}

uint64_t Heap::footprint(uint64_t bytes) { return rounded_up(bytes, kAllocationAlignment); }

// With a gap behind it, so that an access beyond the end meets no neighbour.
uint64_t Heap::addresses(uint64_t bytes) const {
  return rounded_up(footprint(bytes) + kAllocationAlignment, alignment_);
}

std::optional<uint64_t> Heap::allocate(uint64_t bytes, uint32_t number, const std::string& by) {
  if (bytes > capacity_ || used_ + footprint(bytes) > capacity_) return std::nullopt;
  const uint64_t needed = addresses(bytes);
  auto best = free_.end();
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    if (at->second >= needed && (best == free_.end() || at->second < best->second)) best = at;
  }
  if (best == free_.end()) return std::nullopt;
  const uint64_t at = best->first, left = best->second - needed;
  free_.erase(best);
  if (left > 0) free_[at + needed] = left;
  live_[at] = {at, bytes, number, by};
  used_ += footprint(bytes);
  peak_ = std::max(peak_, used_);
  ++count_;
  high_water_ = std::max(high_water_, at + needed);
  return at;
}

void Heap::release(uint64_t at) {
  const auto found = live_.find(at);
  used_ -= footprint(found->second.bytes);
  uint64_t size = addresses(found->second.bytes);
  live_.erase(found);
  const auto next = free_.find(at + size);
  if (next != free_.end()) {
    size += next->second;
    free_.erase(next);
  }
  auto before = free_.lower_bound(at);
  if (before != free_.begin() && (--before)->first + before->second == at) {
    before->second += size;
  } else {
    free_[at] = size;
  }
}

const Allocation* Heap::find(uint64_t address) const {
  const auto next = live_.upper_bound(address);
  if (next == live_.begin()) return nullptr;
  const Allocation& a = std::prev(next)->second;
  return address < a.at + std::max<uint64_t>(a.bytes, 1) ? &a : nullptr;
}

bool Heap::any_in(uint64_t begin, uint64_t end) const {
  const auto next = live_.lower_bound(end);
  return next != live_.begin() &&
         std::prev(next)->second.at + std::prev(next)->second.bytes > begin;
}

}  // namespace vgpu
