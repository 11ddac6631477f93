#include "core/base/permutation.h"

#include "core/base/error.h"
#include "core/base/rng.h"

namespace weft {
namespace {

// The finalizer of MurmurHash3: each bit of the input changes half of the output's.
uint64_t scramble(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdull;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

}  // namespace

Permutation::Permutation(uint64_t seed, std::string_view name, int64_t count) : count_(count) {
  WEFT_CHECK(count > 0 && count < int64_t{1} << 62, "a permutation of {} elements", count);
  while (int64_t{1} << (2 * half_bits_) < count) ++half_bits_;
  const RandomStream stream(seed, name);
  for (int round = 0; round < kRounds; ++round) keys_[round] = stream.bits(round);
}

// A Feistel network permutes 4^half_bits < 4 * count numbers. Iterating it until the result is
// below `count` gives a permutation of 0 .. count - 1.
int64_t Permutation::operator()(int64_t index) const {
  WEFT_CHECK(index >= 0 && index < count_, "element {} of a permutation of {}", index, count_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto x = static_cast<uint64_t>(index);
  do {
    uint64_t left = x >> half_bits_, right = x & mask;
    for (const uint64_t key : keys_) {
      const uint64_t next = left ^ (scramble(right + key) & mask);
      left = right;
      right = next;
    }
    x = left << half_bits_ | right;
  } while (x >= static_cast<uint64_t>(count_));
  return static_cast<int64_t>(x);
}

}  // namespace weft
