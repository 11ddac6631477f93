#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace vgpu {

struct Allocation {
  uint64_t at, bytes;
  uint32_t number;
  std::string by;
};

// Which addresses of one range are allocated. Bytes count as a device would count them; addresses
// are plenty, so that gaps keep neighbours apart.
class Heap {
 public:
  // Allocations begin at multiples of `alignment`.
  Heap(uint64_t base, uint64_t address_space, uint64_t capacity, uint64_t alignment);

  std::optional<uint64_t> allocate(uint64_t bytes, uint32_t number, const std::string& by);
  void release(uint64_t at);
  const Allocation* find(uint64_t address) const;  // that covers it
  // True if any byte of the range is allocated.
  bool any_in(uint64_t begin, uint64_t end) const;

  uint64_t used() const { return used_; }
  uint64_t peak() const { return peak_; }
  uint64_t capacity() const { return capacity_; }
  uint64_t count() const { return count_; }  // allocations ever made
  const std::map<uint64_t, Allocation>& live() const { return live_; }
  // End of the highest allocation that ever was.
  uint64_t high_water() const { return high_water_; }

 private:
  static uint64_t footprint(uint64_t bytes);
  uint64_t addresses(uint64_t bytes) const;

  uint64_t alignment_, capacity_, used_ = 0, peak_ = 0, count_ = 0, high_water_;
  std::map<uint64_t, uint64_t> free_;  // address to bytes
  std::map<uint64_t, Allocation> live_;
};

}  // namespace vgpu
