#include "tests/support/vgpu/check/checker.h"

#include <driver_types.h>

#include <fmt/format.h>

#include <cstring>

#include "tests/support/vgpu/check/checker_access.h"
#include "tests/support/vgpu/check/where.h"

namespace vgpu {
namespace {

constexpr uint64_t kStaticSharedBytes = uint64_t{1} << 20;

}  // namespace

Checker::Checker(int device, uint64_t capacity, bool thorough)
    : device_(device),
      thorough_(thorough),
      shared_halves_((kStaticShared + kStaticSharedBytes) / 2) {
  spaces_[device] = std::make_unique<Space>(device, capacity);
  for (const int range : {kPinnedRange, kManagedRange}) {
    spaces_[range] = std::make_unique<Space>(range, kHostCapacity);
  }
}

Allocations* Checker::allocations(uint64_t address) {
  const uint64_t range = range_of(address);
  return range < kRanges && spaces_[range] != nullptr ? &spaces_[range]->allocations : nullptr;
}

void Checker::forget(uint64_t at, uint64_t bytes) {
  Space& space = *spaces_[range_of(at)];
  if (thorough_) space.words.clear((at - space.base) / 4, (bytes + 3) / 4);
}

void Checker::begin(const CommandInfo& command, std::span<const uint32_t> clock) {
  history_.begin(command, clock);
}

void Checker::access_range(Direction direction, uint64_t at, uint64_t bytes) {
  const bool writes = direction == Direction::kWrites;
  const Where where{at, bytes, writes ? kWrite : kRead, nullptr};
  const uint64_t range = range_of(at);
  if (range >= kRanges || spaces_[range] == nullptr) report_dead(where);
  Space& space = *spaces_[range];
  const uint64_t offset = at - space.base, end = offset + bytes;
  if (!space.allocations.live_range(offset, bytes)) report_dead(where);
  if (!thorough_) return;
  for (uint64_t word = offset / 4; 4 * word < end; ++word) {
    const uint64_t first = std::max(offset, 4 * word), last = std::min(end, 4 * word + 4);
    const unsigned mask = ((1u << (last - first)) - 1) << (first - 4 * word);
    if (!writes && space.device_memory && (space.words[word].written & mask) != mask) {
      report_unwritten({space.base + first, last - first, kRead, nullptr});
    }
    if (writes) {
      order_commands<kWrite>(space, word, mask, nullptr);
    } else {
      order_commands<kRead>(space, word, mask, nullptr);
    }
  }
}

void Checker::begin_kernel(const simt::Shape& shape, const TwinImage& image) {
  races_.begin_kernel(shape);
  if (races_.renumbered()) shared_halves_.clear(0, (kStaticShared + kStaticSharedBytes) / 2);
  const auto stacks = simt::stack_range();
  stacks_begin_ = reinterpret_cast<uint64_t>(stacks.data());
  stacks_bytes_ = stacks.size();
  shared_begin_ = reinterpret_cast<uint64_t>(simt::shared_range().data());
  shared_bytes_ = shape.shared_bytes;
  static_begin_ = reinterpret_cast<uint64_t>(image.static_shared.data());
  static_bytes_ = std::min<uint64_t>(image.static_shared.size(), kStaticSharedBytes);
  constants_ = image.segments;
}

// Static shared memory begins as NaNs too.
void Checker::block_begins(const simt::Index& block) {
  std::memset(reinterpret_cast<void*>(static_begin_), 0xff, static_bytes_);
  races_.begin_block(block);
}

void Checker::access(const void* at, size_t bytes, simt::Access kind) {
  const Where where{reinterpret_cast<uint64_t>(at), bytes, kind, nullptr};
  if (where.at % bytes != 0) report_misaligned(where);
  switch (kind) {
    case simt::Access::kRead: return kernel_access<simt::Access::kRead>(where);
    case simt::Access::kWrite: return kernel_access<simt::Access::kWrite>(where);
    case simt::Access::kAtomic: return kernel_access<simt::Access::kAtomic>(where);
  }
}

// Constants of the kernel's library may be read; everything else is no address of this device.
void Checker::access_elsewhere(const Where& where) {
  const auto* at = reinterpret_cast<const std::byte*>(where.at);
  if (where.kind == kRead) {
    for (const auto& segment : constants_) {
      if (at >= segment.data() && at + where.bytes <= segment.data() + segment.size()) return;
    }
  }
  report_dead(where);
}

}  // namespace vgpu
