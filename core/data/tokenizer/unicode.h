#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// Valid UTF-8 in that form (through ICU).
std::string normalized(NormalForm form, std::string_view text);

bool is_white_space(uint32_t c);     // Unicode's property of that name
bool is_word_character(uint32_t c);  // letters, marks, decimal digits, connectors, joiners
bool is_number(uint32_t c);          // Nd, Nl, No

}  // namespace weft
