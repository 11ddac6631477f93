#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace weft {

// XXH3, 128 bits, as 32 hex digits: tells damage from health, not friend from foe.
std::string hash_of(std::span<const std::byte> bytes);
inline std::string hash_of(const std::string& text) { return hash_of(std::as_bytes(std::span(text))); }

}  // namespace weft
