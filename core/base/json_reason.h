#pragma once

#include <string>

namespace weft {

// What nlohmann's parser says, for people: "[json.exception.parse_error.101] parse error at line 4,
// column 939: ...; last read: ..." without its number and without what it read last, which may be
// all of the text.
inline std::string json_reason(std::string what) {
  if (what.starts_with("[json.")) what.erase(0, what.find(' ') + 1);
  return what.substr(0, what.find("; last read"));
}

}  // namespace weft
