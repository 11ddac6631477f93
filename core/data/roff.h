#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

// The text of a manual page: its source in roff (man or mdoc macros) without requests, comments,
// fonts and conditional parts; headings on lines of their own, one line per paragraph, examples
// line by line. Meant for reading and for training, not for typesetting: tables lose their columns,
// unknown macros keep their words.
std::string text_of_roff(std::string_view source);

// One line without escapes: fonts, sizes and motions go, characters stay ("\-" is "-", "\(co" is
// "(c)" as a character).
std::string without_roff_escapes(std::string_view line);

}  // namespace weft
