#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// A regular expression of a tokenizer.json: written for Oniguruma (Ruby's syntax, Unicode classes),
// run by PCRE2 with its compiler. What the two read differently is translated (\s, \w, \d, \v,
// \uXXXX, ^ and $ at every line) or refused by name; never silently another meaning.
class Regex {
 public:
  static constexpr size_t kLongestPattern = 1 << 16;

  // ConfigError starting with `where` for what cannot be compiled.
  Regex(const std::string& pattern, const std::string& where);

  struct Match {
    size_t begin, end;
  };
  // All matches in valid UTF-8, from left to right, none overlapping; an empty match is not taken
  // where the one before ended. Thread-safe. ConfigError when a match takes unreasonably many
  // steps.
  void find_all(std::string_view text, std::vector<Match>& out) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
  std::string where_;
};

// The pattern in PCRE2's words; ConfigError starting with `where` for what it cannot say.
std::string pcre2_pattern(const std::string& oniguruma, const std::string& where);

}  // namespace weft
