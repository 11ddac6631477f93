#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct XXH3_state_s;

namespace weft {

// XXH3, 128 bits, as 32 hex digits: tells damage from health, not friend from foe.
inline constexpr size_t kHashDigits = 32;
std::string hash_of(std::span<const std::byte> bytes);
inline std::string hash_of(const std::string& text) {
  return hash_of(std::as_bytes(std::span(text)));
}

// The same, of bytes that come in pieces.
class Hasher {
 public:
  Hasher();

  void add(std::span<const std::byte> bytes);
  std::string text() const;  // of all that was added so far

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

// Files are hashed in blocks, so that any part of one can be checked by itself, and all of it by
// several threads. The last block of a file may be shorter. What stands for the whole file is the
// hash of the digits of its blocks, one after the other.
inline constexpr int64_t kHashedBlock = 1 << 20;  // bytes
constexpr int64_t hashed_blocks(int64_t bytes) { return (bytes + kHashedBlock - 1) / kHashedBlock; }

}  // namespace weft
