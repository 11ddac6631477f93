#pragma once

#include <optional>
#include <string>

#include "core/data/tokenizer/json_part.h"
#include "core/data/tokenizer/regex.h"

namespace weft {

// Replaces every match of a pattern, plain or regular: a normalizer and a decoder do this.
class Replacement {
 public:
  explicit Replacement(const JsonPart& json, const std::string& where);
  std::string apply(const std::string& text) const;

 private:
  std::string plain_, content_;
  std::optional<Regex> regex_;
};

std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace weft
