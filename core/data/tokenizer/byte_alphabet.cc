#include "core/data/tokenizer/byte_alphabet.h"

#include "core/base/utf8.h"

namespace weft {
namespace {

constexpr uint32_t kAlphabetEnd = 0x144;  // behind the last character that stands for a byte

bool printable(int b) {
  return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

struct Alphabet {
  std::array<uint32_t, 256> character{};
  std::array<int16_t, kAlphabetEnd> byte{};  // -1: none

  Alphabet() {
    byte.fill(-1);
    uint32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const uint32_t c = printable(b) ? static_cast<uint32_t>(b) : next++;
      character[static_cast<size_t>(b)] = c;
      byte[c] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet all;
  return all;
}

}  // namespace

uint32_t character_of_byte(int byte) { return alphabet().character[static_cast<size_t>(byte)]; }

std::string spelled(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) append_utf8(out, character_of_byte(static_cast<unsigned char>(c)));
  return out;
}

std::optional<std::string> unspelled(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = next_code_point(text, at);
    if (c >= kAlphabetEnd || alphabet().byte[c] < 0) return std::nullopt;
    bytes += static_cast<char>(alphabet().byte[c]);
  }
  return bytes;
}

}  // namespace weft
