#include "core/base/utf8.h"

#include <algorithm>

namespace weft {

int utf8_length(std::string_view text) {
  if (text.empty()) return -1;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const int length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  // The second byte excludes overlong forms, surrogates and code points beyond U+10FFFF.
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < static_cast<size_t>(length); ++i) {
    if (i == text.size()) return -1;
    if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) return 0;
  }
  return length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    size_t plain = 0;
    while (plain < text.size() && static_cast<unsigned char>(text[plain]) < 0x80) ++plain;
    text.remove_prefix(plain);
    if (text.empty()) return true;
    const int length = utf8_length(text);
    if (length <= 0) return false;
    text.remove_prefix(static_cast<size_t>(length));
  }
  return true;
}

size_t bad_utf8_length(std::string_view text) {
  for (size_t length = std::min<size_t>(3, text.size()); length > 1; --length) {
    if (utf8_length(text.substr(0, length)) < 0) return length;
  }
  return 1;
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const int length = utf8_length(text);
    const size_t taken = length > 0 ? static_cast<size_t>(length) : bad_utf8_length(text);
    out += length > 0 ? text.substr(0, taken) : kReplacementCharacter;
    text.remove_prefix(taken);
  }
  return out;
}

uint32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : uint32_t{0};
  };
  const uint32_t first = byte(at);
  const size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  uint32_t c = length == 1 ? first : first & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) c = c << 6 | (byte(at + i) & 0x3F);
  at += length;
  return c;
}

void append_utf8(std::string& out, uint32_t c) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) {
    out += kReplacementCharacter;
  } else if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace weft
