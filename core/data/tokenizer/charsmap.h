#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// The "precompiled charsmap" of SentencePiece: strings and their replacements, found through a
// double array of 32-bit units (Darts). Not trusted: every step is checked.
class Charsmap {
 public:
  struct Match {
    size_t length;          // of the text
    std::string_view text;  // to put there; views of the charsmap
  };

  // u32 size of the units, units, replacements that end at a zero byte. Nothing for what is not so.
  static std::optional<Charsmap> read(std::string_view blob);

  // The shortest or longest string of the map that `text` begins with.
  std::optional<Match> shortest(std::string_view text) const { return find(text, false); }
  std::optional<Match> longest(std::string_view text) const { return find(text, true); }

 private:
  std::optional<Match> find(std::string_view text, bool longest) const;
  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace weft
