#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/data/tokenizer/json_part.h"

namespace weft {

// The usual replacement of a space.
inline constexpr std::string_view kMark = "\u2581";

// Spaces as a visible character (U+2581 as a rule), one more in front of the text or not.
struct Metaspace {
  enum class Scheme : uint8_t { kAlways, kFirst, kNever };
  explicit Metaspace(const JsonPart& json);

  std::string replacement;
  Scheme scheme = Scheme::kAlways;
};

}  // namespace weft
