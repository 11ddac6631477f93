#include "tests/support/vgpu/check/thread_races.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace vgpu {

using simt::kWarp;

namespace {

constexpr uint32_t kLastInterval = 0xf0000000u;

std::string text_of(const simt::Index& i) { return fmt::format("({}, {}, {})", i.x, i.y, i.z); }

}  // namespace

void ThreadRaces::begin_kernel(const simt::Shape& shape) {
  shape_ = shape;
  blocks_.clear();
  renumbered_ = interval_ > kLastInterval;
  if (renumbered_) interval_ = 0;
}

void ThreadRaces::begin_block(const simt::Index& block) {
  next_interval();
  block_first_ = interval_;
  blocks_.emplace_back(interval_, block);
}

void ThreadRaces::barrier() { next_interval(); }

// Nothing is known of other lanes yet: their counts begin at 1.
void ThreadRaces::next_interval() {
  ++interval_;
  for (unsigned warp = 0; synced_warps_ != 0; ++warp, synced_warps_ >>= 1) {
    if ((synced_warps_ & 1) != 0) std::memset(clocks_[warp], 0, sizeof clocks_[warp]);
  }
  std::fill_n(own_clock_, shape_.block.count(), uint16_t{1});
}

// Every lane of the mask now comes after what the others did before.
void ThreadRaces::sync_lanes(unsigned warp, unsigned mask) {
  uint16_t joined[kWarp] = {};
  uint16_t* own = own_clock_ + warp * kWarp;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    for (unsigned i = 0; i < kWarp; ++i) joined[i] = std::max(joined[i], clocks_[warp][lane][i]);
  }
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if ((mask >> lane & 1) != 0) joined[lane] = std::max(joined[lane], own[lane]++);
  }
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if ((mask >> lane & 1) != 0) std::memcpy(clocks_[warp][lane], joined, sizeof joined);
  }
  synced_warps_ |= 1u << warp;
}

std::string ThreadRaces::name_of(unsigned thread, uint32_t interval) const {
  const auto next = std::upper_bound(blocks_.begin(), blocks_.end(), interval,
                                     [](uint32_t i, const auto& block) { return i < block.first; });
  const std::string block =
      next == blocks_.begin() ? "an earlier block" : "block " + text_of(std::prev(next)->second);
  return fmt::format("thread {} of {}", text_of(simt::index_of(thread, shape_.block)), block);
}

std::string ThreadRaces::running() const { return name_of(thread_, interval_); }

std::string ThreadRaces::writer(const Half& half) const {
  const WriteStamp stamp = WriteStamp::of(half.write);
  return name_of(stamp.thread, stamp.interval);
}

std::string ThreadRaces::readers(const Half& half) const {
  const ReadStamp stamp = ReadStamp::of(half.read);
  if (stamp.interval == ReadStamp::kManyBlocks) return "threads of several blocks";
  const std::string one = name_of(stamp.warp * kWarp + stamp.lane, stamp.interval);
  return stamp.many ? one + " and threads of other warps" : one;
}

}  // namespace vgpu
