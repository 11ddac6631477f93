#pragma once

#include <cstdint>

// Records of accesses to memory. Commands are numbered over the device, from 1; 0 is none.
namespace vgpu {

// Last accesses to 4 bytes of global memory, by command. Two readers, because two commands without
// an order may both read before a third one writes.
struct Word {
  uint32_t writer, reader, other_reader;
  uint8_t written;  // a bit for each byte that was ever written
};

// Last accesses to 2 bytes within one kernel, by thread. An interval lies between two barriers of
// one block; intervals are numbered over the device and never reused.
struct Half {
  uint64_t write, read;
};

// Half::write: interval, thread, the thread's count of warp barriers, flags.
struct WriteStamp {
  uint32_t interval;
  uint16_t thread, lane_clock;
  bool atomic;
  bool single_bytes;  // neighbours in the same two bytes may be another thread's: not compared

  uint64_t packed() const {
    return uint64_t{interval} << 32 | uint64_t{thread} << 22 | uint64_t{lane_clock} << 6 |
           uint64_t{single_bytes} << 1 | uint64_t{atomic};
  }
  static WriteStamp of(uint64_t x) {
    return {static_cast<uint32_t>(x >> 32), static_cast<uint16_t>(x >> 22 & 0x3ff),
            static_cast<uint16_t>(x >> 6 & 0xffff), (x & 1) != 0, (x & 2) != 0};
  }
};

// Half::read: interval, warp, two of its lanes, the count of warp barriers of the later one.
// `many`: threads of several warps, or of several blocks when the interval is kManyBlocks.
struct ReadStamp {
  static constexpr uint32_t kManyBlocks = 0xffffffffu;
  uint32_t interval;
  bool many;
  uint8_t warp, lane, other_lane;
  uint16_t lane_clock;

  uint64_t packed() const {
    return uint64_t{interval} << 32 | uint64_t{many} << 31 | uint64_t{warp} << 26 |
           uint64_t{lane} << 21 | uint64_t{other_lane} << 16 | lane_clock;
  }
  static ReadStamp of(uint64_t x) {
    return {static_cast<uint32_t>(x >> 32),     (x >> 31 & 1) != 0,
            static_cast<uint8_t>(x >> 26 & 31), static_cast<uint8_t>(x >> 21 & 31),
            static_cast<uint8_t>(x >> 16 & 31), static_cast<uint16_t>(x)};
  }
};

}  // namespace vgpu
