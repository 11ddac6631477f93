#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Byte-level tokenizers spell bytes as printable characters: those that are one stand for
// themselves, the others follow from U+0100 on, in order.
uint32_t character_of_byte(int byte);
std::string spelled(std::string_view bytes);  // each byte as its character, in UTF-8

// The bytes that `text` spells; nothing when one of its characters stands for no byte.
std::optional<std::string> unspelled(std::string_view text);

}  // namespace weft
