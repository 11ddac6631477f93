#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

// Bytes of the valid UTF-8 character at the start of `text` (shortest form, no surrogates, at most
// U+10FFFF). 0: none starts there. -1: it could become one if more bytes came.
int utf8_length(std::string_view text);

bool is_utf8(std::string_view text);

void append_utf8(std::string& out, uint32_t code_point);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

}  // namespace weft
