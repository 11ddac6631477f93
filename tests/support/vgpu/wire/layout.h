#pragma once

#include <cstddef>
#include <cstdint>

// Addresses of the virtual GPU. Memory of every kind lies at the same address in the host process
// and in its device processes: device memory of device d in range 0x30 + d (no access in the host),
// pinned and managed memory in ranges of their own. The number of a range is its address >> 40.
namespace vgpu {

inline constexpr int kMaxDevices = 16, kMaxStreams = 256, kMaxTimedEvents = 1024;
inline constexpr int kRangeBits = 40;
inline constexpr uint64_t kFirstRange = 0x30;
inline constexpr int kPinnedRange = 16, kManagedRange = 17, kRanges = 18;  // after the devices'

constexpr uint64_t range_base(int range) {
  return (kFirstRange + static_cast<uint64_t>(range)) << kRangeBits;
}
// The range that an address lies in, or something not below kRanges.
constexpr uint64_t range_of(uint64_t address) { return (address >> kRangeBits) - kFirstRange; }
inline uint64_t range_of(const void* address) {
  return range_of(reinterpret_cast<uint64_t>(address));
}

// Largest size of pinned and of managed memory; device memory has the size of the device.
inline constexpr uint64_t kHostCapacity = uint64_t{16} << 30;
inline constexpr uint64_t kAllocationAlignment = 512;

// File descriptors that a device process is started with.
inline constexpr int kSocketFd = 3, kDeviceMemoryFd = 4, kPinnedFd = 5, kManagedFd = 6,
                     kBoardFd = 7, kFirstFreeFd = 8;

}  // namespace vgpu
