#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

// Bytes of the valid UTF-8 character at the start of `text` (shortest form, no surrogates, at most
// U+10FFFF). 0: none starts there. -1: it could become one if more bytes came.
int utf8_length(std::string_view text);

bool is_utf8(std::string_view text);

// Length of the invalid prefix of `text` that one U+FFFD replaces: the longest prefix that
// could have become a character, at least one byte. Same rule as in Rust and the Unicode
// standard.
size_t bad_utf8_length(std::string_view text);

// The text, with U+FFFD in place of invalid UTF-8.
std::string valid_utf8(std::string_view text);

// The character at `at` of valid UTF-8; `at` moves behind it.
uint32_t next_code_point(std::string_view text, size_t& at);

void append_utf8(std::string& out, uint32_t code_point);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

}  // namespace weft
