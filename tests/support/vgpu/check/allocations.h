#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/support/vgpu/wire/message.h"

namespace vgpu {

// Memory of pages that exist once they are touched, reading as zeros.
template <class T>
class SparseArray {
 public:
  explicit SparseArray(uint64_t count);
  T& operator[](uint64_t i) { return data_[i]; }
  const T& operator[](uint64_t i) const { return data_[i]; }
  // Back to zeros, whole pages by giving them back.
  void clear(uint64_t first, uint64_t count);

 private:
  T* data_;
};

// Live allocations of one range of addresses.
class Allocations {
 public:
  Allocations(uint64_t base, uint64_t capacity);

  void add(const AllocationBody& allocation);
  // Nothing remains accessible; the text is kept to name uses after it.
  void remove(uint64_t at, const std::string& by);

  // True if all of these bytes are allocated. Fast, since every access of a kernel calls it.
  bool live(uint64_t offset, uint64_t bytes) const {
    const uint64_t in_granule = offset % kGranule;
    if (in_granule + bytes <= live_bytes_[offset / kGranule]) return true;
    return in_granule + bytes > kGranule && live_beyond(offset, bytes);
  }
  // Every byte of a range, which may be long.
  bool live_range(uint64_t offset, uint64_t bytes) const;

  // "byte 12 of the 4096 bytes of allocation 3 (cudaMalloc in main)", or what lies around it.
  std::string describe(uint64_t address) const;

  struct Allocation {
    uint64_t bytes;
    uint32_t number;
    std::string by, freed_by;  // the latter empty while it lives
  };

 private:
  static constexpr uint64_t kGranule = 512;
  bool live_beyond(uint64_t offset, uint64_t bytes) const;
  void mark(uint64_t offset, uint64_t bytes, bool live);

  uint64_t base_, capacity_;
  SparseArray<uint16_t> live_bytes_;  // of each granule, from its start
  std::map<uint64_t, Allocation> by_address_;
};

}  // namespace vgpu
