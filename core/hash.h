#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace weft {

// XXH3, 128 bits, as 32 hex digits: tells damage from health, not friend from foe.
std::string hash_of(std::span<const std::byte> bytes);
inline std::string hash_of(const std::string& text) {
  return hash_of(std::as_bytes(std::span(text)));
}

// The same, of bytes that come in pieces.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  void add(std::span<const std::byte> bytes);
  std::string text() const;  // of all that was added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft
