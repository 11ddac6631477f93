#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace weft {

// A shuffle of 0 .. count - 1 that needs no memory: element i is computed on demand and depends on
// (seed, name, count) alone.
class Permutation {
 public:
  Permutation(uint64_t seed, std::string_view name, int64_t count);
  int64_t operator()(int64_t index) const;  // 0 <= index < count
  int64_t count() const { return count_; }

 private:
  static constexpr int kRounds = 6;
  int64_t count_;
  int half_bits_ = 1;
  std::array<uint64_t, kRounds> keys_{};
};

}  // namespace weft
