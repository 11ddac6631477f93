#include "core/data/tokenizer/charsmap.h"

#include <cstring>

#include "core/base/utf8.h"

namespace weft {
namespace {

// A unit of Darts: bits 0 to 7 the label that leads here, 8 whether a value is among its children,
// 9 whether the offset is in units of 256, 10 to 30 the offset; with bit 31 the rest is a value.
uint32_t label_of(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }

}  // namespace

std::optional<Charsmap> Charsmap::read(std::string_view blob) {
  uint32_t size = 0;
  if (blob.size() < sizeof size) return std::nullopt;
  std::memcpy(&size, blob.data(), sizeof size);
  blob.remove_prefix(sizeof size);
  if (size == 0 || size % 4 != 0 || size > blob.size()) return std::nullopt;
  Charsmap map;
  map.units_.resize(size / 4);
  std::memcpy(map.units_.data(), blob.data(), size);
  map.replacements_ = blob.substr(size);
  if (!is_utf8(map.replacements_)) return std::nullopt;
  return map;
}

std::optional<Charsmap::Match> Charsmap::find(std::string_view text, bool longest) const {
  uint32_t place = offset_of(units_[0]);
  size_t length = 0;
  uint32_t value = 0;
  for (size_t at = 0; at < text.size() && text[at] != 0; ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    place ^= byte;
    if (place >= units_.size() || label_of(units_[place]) != byte) break;
    const bool found = has_value(units_[place]);
    place ^= offset_of(units_[place]);
    if (place >= units_.size()) break;
    if (!found) continue;
    length = at + 1;
    value = units_[place] & ~(1u << 31);
    if (!longest) break;
  }
  if (length == 0 || value > replacements_.size()) return std::nullopt;
  const std::string_view rest = std::string_view(replacements_).substr(value);
  const std::string_view to = rest.substr(0, rest.find('\0'));
  if (!is_utf8(to)) return std::nullopt;  // begins inside a character
  return Match{length, to};
}

}  // namespace weft
