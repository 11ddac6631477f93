#pragma once

#include <string>

namespace weft {

// Shortens nlohmann's message "[json.exception.parse_error.101] parse error at line 4, column 939:
// ...; last read: ..." for users: drops the number and the last read text, which may be the whole
// file.
inline std::string json_reason(std::string what) {
  if (what.starts_with("[json.")) what.erase(0, what.find(' ') + 1);
  return what.substr(0, what.find("; last read"));
}

}  // namespace weft
