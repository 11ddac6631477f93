#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tests/support/simt/grid.h"

namespace simt {

// The order in which blocks, warps and lanes run, drawn from a seed.
class ThreadOrder {
 public:
  ThreadOrder(Order order, uint32_t seed);

  // Lanes of a warp; those at or above the warp's size are to be skipped.
  const uint8_t* lanes() { return draw(); }
  // Warps of a block, likewise.
  const uint8_t* warps() { return draw(); }

  // Number i of `count` blocks: a permutation without a table.
  void begin_blocks(uint64_t count);
  uint64_t block(uint64_t i) const;

 private:
  static constexpr unsigned kPermutations = 16;
  const uint8_t* draw();
  uint32_t random();

  Order order_;
  uint32_t state_;
  std::array<std::array<uint8_t, kWarp>, kPermutations> permutations_;
  uint64_t blocks_ = 0, stride_ = 1, offset_ = 0;
};

}  // namespace simt
