#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/data/tokenizer/json_part.h"

namespace weft {

// The tokens of a model and their ids, in both directions.
class Vocabulary {
 public:
  Vocabulary() = default;
  explicit Vocabulary(const JsonPart& json);  // an object: id by token

  // A token that stands twice keeps both ids; its last one is found.
  void add(std::string token, int32_t id);

  int64_t tokens() const { return tokens_; }
  int32_t largest_id() const { return static_cast<int32_t>(names_.size()) - 1; }
  int32_t id_of(std::string_view token) const;   // -1: none
  const std::string* name_of(int32_t id) const;  // as in the file; null: none

  template <class Visit>
  void each(Visit&& visit) const {  // visit(token, id)
    for (const auto& [token, id] : ids_) visit(token, id);
  }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::vector<std::string> names_;
  std::vector<bool> named_;
  int64_t tokens_ = 0;
};

}  // namespace weft
