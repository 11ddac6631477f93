#include "tests/support/simt/thread_order.h"

#include <numeric>
#include <utility>

namespace simt {

ThreadOrder::ThreadOrder(Order order, uint32_t seed) : order_(order), state_(seed) {
  for (auto& permutation : permutations_) {
    for (unsigned i = 0; i < kWarp; ++i) {
      permutation[i] = static_cast<uint8_t>(order == Order::kReverse ? kWarp - 1 - i : i);
    }
    if (order != Order::kShuffled) continue;
    for (unsigned i = kWarp; i > 1; --i) std::swap(permutation[i - 1], permutation[random() % i]);
  }
}

uint32_t ThreadOrder::random() {
  state_ = state_ * 1664525u + 1013904223u;
  return state_ >> 8;
}

const uint8_t* ThreadOrder::draw() {
  const unsigned which = order_ == Order::kShuffled ? random() % kPermutations : 0;
  return permutations_[which].data();
}

void ThreadOrder::begin_blocks(uint64_t count) {
  blocks_ = count;
  stride_ = 1, offset_ = 0;
  if (order_ != Order::kShuffled) return;
  offset_ = random() % count;
  do {
    stride_ = 1 + random() % count;
  } while (std::gcd(stride_, count) != 1);
}

uint64_t ThreadOrder::block(uint64_t i) const {
  if (order_ == Order::kReverse) return blocks_ - 1 - i;
  return (i * stride_ + offset_) % blocks_;
}

}  // namespace simt
