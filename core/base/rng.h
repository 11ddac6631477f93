#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace weft {

// Counter-based random numbers: value i of a stream is a function of (seed, name, i) alone, so a
// rank that holds elements 500..999 of a weight draws the same numbers as one that holds all of
// them.
class RandomStream {
 public:
  RandomStream(uint64_t seed, std::string_view name);

  uint64_t bits(uint64_t index) const;                   // 64 uniform bits
  double uniform(uint64_t index) const;                  // in [0, 1)
  double normal(uint64_t index) const;                   // mean 0, deviation 1
  uint64_t below(uint64_t index, uint64_t bound) const;  // uniform in [0, bound)

 private:
  std::array<uint32_t, 4> block(uint64_t index) const;
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 2> stream_;
};

}  // namespace weft
