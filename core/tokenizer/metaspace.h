#pragma once

#include <cstdint>
#include <string>

#include "core/tokenizer/json_part.h"

namespace weft {

// Spaces as a visible character (U+2581 as a rule), one more in front of the text or not.
struct Metaspace {
  enum class Scheme : uint8_t { kAlways, kFirst, kNever };
  explicit Metaspace(const JsonPart& json);

  std::string replacement;
  Scheme scheme = Scheme::kAlways;
};

}  // namespace weft
