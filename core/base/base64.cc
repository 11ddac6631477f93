#include "core/base/base64.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace weft {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> values_of_digits() {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  return values;
}

}  // namespace

std::optional<std::string> from_base64(std::string_view text) {
  static constexpr std::array<int8_t, 256> values = values_of_digits();
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && text.ends_with('=')) {
    text.remove_suffix(1);
    ++padding;
  }
  std::string out;
  out.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const int8_t value = values[static_cast<unsigned char>(c)];
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    out += static_cast<char>(bits >> held & 0xFF);
  }
  // Bits that the padding leaves over must be zero: one spelling for each text.
  if ((bits & ((1u << held) - 1)) != 0) return std::nullopt;
  return out;
}

std::string to_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    const size_t here = std::min<size_t>(3, bytes.size() - at);
    for (size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (i < here ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (size_t i = 0; i < 4; ++i) out += i <= here ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}

}  // namespace weft
