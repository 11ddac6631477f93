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
uint32_t lower_case(uint32_t c);     // the simple mapping

// Where the last character of valid UTF-8 that is not empty begins.
size_t last_character(std::string_view text);

// White space at the end of `text` begins here, and that at its beginning ends here.
size_t white_space_begin(std::string_view text);
size_t white_space_end(std::string_view text);

// As in the tables of the `tokenizers` package, which are older than ICU's: characters newer than
// Unicode 8 (is_mark: 9) are none of these.
bool is_control(uint32_t c);          // Cc, Cf, Co
bool is_nonspacing_mark(uint32_t c);  // Mn
bool is_mark(uint32_t c);             // Mn, Mc, Me
bool is_punctuation(uint32_t c);      // of ASCII, and Pc, Pd, Pe, Pf, Pi, Po, Ps

}  // namespace weft
