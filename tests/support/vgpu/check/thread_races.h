#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/simt/grid.h"
#include "tests/support/vgpu/check/shadow.h"

namespace vgpu {

// Order of the threads of one kernel. Threads of a block are ordered by its barriers, lanes of a
// warp by __syncwarp too, blocks by nothing. Each pair of barriers bounds an interval with a number
// of its own.
class ThreadRaces {
 public:
  void begin_kernel(const simt::Shape& shape);
  void begin_block(const simt::Index& block);
  void switch_to(unsigned thread) {
    thread_ = thread;
    warp_ = thread / simt::kWarp;
    lane_ = thread % simt::kWarp;
    const auto warp = static_cast<uint8_t>(warp_), lane = static_cast<uint8_t>(lane_);
    const uint16_t clock = own_clock_[thread];
    write_stamp_ =
        WriteStamp{interval_, static_cast<uint16_t>(thread), clock, false, false}.packed();
    read_stamp_ = ReadStamp{interval_, false, warp, lane, lane, clock}.packed();
  }
  void barrier();
  void sync_lanes(unsigned warp, unsigned mask);

  // True if the running thread's access to two bytes is unordered with those that Half records. In
  // global memory Half records accesses of this kernel; shared memory is new in every block, so
  // records of earlier blocks are ignored.
  enum class Memory { kGlobal, kShared };
  template <Memory memory, simt::Access kind>
  bool conflicts(const Half& half) const;
  template <Memory memory, simt::Access kind>
  void remember(Half& half, bool single_byte) const;

  bool written_in_this_block(const Half& half) const { return half.write >> 32 >= block_first_; }
  // "thread (3, 0, 0) of block (1, 0, 0)" of the running thread, and of what a stamp names.
  std::string running() const;
  std::string writer(const Half& half) const;
  std::string readers(const Half& half) const;

  // True once the numbers of intervals wrapped around: older stamps mean nothing.
  bool renumbered() const { return renumbered_; }

 private:
  bool ordered(unsigned thread, uint16_t lane_clock) const {
    if (thread == thread_) return true;
    return thread / simt::kWarp == warp_ &&
           clocks_[warp_][lane_][thread % simt::kWarp] >= lane_clock;
  }
  template <Memory memory, simt::Access kind>
  bool conflicts_with_write(uint64_t write) const;
  template <Memory memory>
  bool conflicts_with_read(uint64_t read) const;
  void next_interval();
  std::string name_of(unsigned thread, uint32_t interval) const;

  simt::Shape shape_;
  uint32_t interval_ = 0, block_first_ = 0;
  unsigned thread_ = 0, warp_ = 0, lane_ = 0;
  uint64_t write_stamp_ = 0, read_stamp_ = 0;  // of the running thread
  bool renumbered_ = false;
  std::vector<std::pair<uint32_t, simt::Index>> blocks_;  // by first interval, of this kernel
  // Newest warp barrier count of each lane that a lane has synchronized with in this interval, and
  // its own count.
  using Clocks = uint16_t[simt::kWarp][simt::kWarp];
  Clocks clocks_[simt::kMaxThreads / simt::kWarp] = {};
  uint16_t own_clock_[simt::kMaxThreads] = {};
  uint32_t synced_warps_ = 0;
};

template <ThreadRaces::Memory memory, simt::Access kind>
bool ThreadRaces::conflicts_with_write(uint64_t write) const {
  const auto interval = static_cast<uint32_t>(write >> 32);
  if (interval == 0) return false;
  const WriteStamp other = WriteStamp::of(write);
  if (other.single_bytes || (kind == simt::Access::kAtomic && other.atomic)) return false;
  if (interval < block_first_) return memory == Memory::kGlobal;
  return interval == interval_ && !ordered(other.thread, other.lane_clock);
}

template <ThreadRaces::Memory memory>
bool ThreadRaces::conflicts_with_read(uint64_t read) const {
  const auto interval = static_cast<uint32_t>(read >> 32);
  if (interval == 0) return false;
  if (interval == ReadStamp::kManyBlocks) return memory == Memory::kGlobal;
  if (interval < block_first_) return memory == Memory::kGlobal;
  if (interval != interval_) return false;
  const ReadStamp other = ReadStamp::of(read);
  const unsigned first = other.warp * simt::kWarp;
  return other.many || !ordered(first + other.lane, other.lane_clock) ||
         !ordered(first + other.other_lane, other.lane_clock);
}

template <ThreadRaces::Memory memory, simt::Access kind>
bool ThreadRaces::conflicts(const Half& half) const {
  if (conflicts_with_write<memory, kind>(half.write)) return true;
  return kind != simt::Access::kRead && conflicts_with_read<memory>(half.read);
}

template <ThreadRaces::Memory memory, simt::Access kind>
void ThreadRaces::remember(Half& half, bool single_byte) const {
  if (kind != simt::Access::kRead) {
    half.write =
        write_stamp_ | uint64_t{single_byte} << 1 | (kind == simt::Access::kAtomic ? 1 : 0);
    return;
  }
  if (single_byte || half.read == read_stamp_) return;
  const auto before = static_cast<uint32_t>(half.read >> 32);
  if (before == interval_) {
    const ReadStamp old = ReadStamp::of(half.read);
    ReadStamp stamp = ReadStamp::of(read_stamp_);
    stamp.many = old.many || old.warp != warp_;
    if (old.lane_clock == stamp.lane_clock) stamp.other_lane = old.lane;
    half.read = stamp.packed();
  } else if (memory == Memory::kGlobal && before != 0 && before < block_first_) {
    half.read = uint64_t{ReadStamp::kManyBlocks} << 32;
  } else if (memory == Memory::kShared || before != ReadStamp::kManyBlocks) {
    half.read = read_stamp_;
  }
}

}  // namespace vgpu
