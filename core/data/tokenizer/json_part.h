#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace weft {

// Sequences of steps within Sequences may be nested this deep.
inline constexpr int kDeepestSequence = 8;

// A part of a JSON file that remembers where it stands, so that every complaint names file and
// place: "tokenizer.json: model.merges[7]: ...". All accessors throw ConfigError.
class JsonPart {
 public:
  JsonPart(const nlohmann::json& value, std::string file, std::string place = "")
      : value_(&value), file_(std::move(file)), place_(std::move(place)) {}

  const nlohmann::json& value() const { return *value_; }
  bool null() const { return value_->is_null(); }

  JsonPart operator[](const std::string& key) const;  // null where it is absent
  std::vector<JsonPart> list() const;
  std::string text() const;  // valid UTF-8 (the parser sees to it)
  int64_t whole(int64_t low, int64_t high) const;
  bool flag(bool when_absent) const;
  std::string text_or(const std::string& when_absent) const;
  std::string type() const { return (*this)["type"].text(); }

  // For what the file may ask and this program does not have.
  [[noreturn]] void refuse(const std::string& what) const;
  // The pattern of Split and Replace: {"String": ...} or {"Regex": ...}.
  struct Pattern {
    std::string text;
    bool regex;
  };
  Pattern pattern() const;

 private:
  const nlohmann::json* value_;
  std::string file_, place_;
};

}  // namespace weft
