#pragma once

#include <cstddef>
#include <string_view>

namespace weft {

// Bytes of the first character as a reader sees it (extended grapheme cluster of Unicode, annex 29,
// without the rule for Indic conjuncts) of valid UTF-8 that is not empty.
size_t grapheme_length(std::string_view text);

}  // namespace weft
