#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/tokenizer/json_part.h"
#include "core/data/tokenizer/normalizer.h"

namespace weft {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;                 // no text: left out when decoding
  bool single_word = false;             // only where no word character touches it
  bool lstrip = false, rstrip = false;  // takes the white space before, behind it
  bool normalized = false;              // looked for in the normalized text, else in the given one
};

// Finds strings in a text, at each place the longest one, from left to right without overlap.
class StringSet {
 public:
  void add(std::string_view text, int32_t value);
  bool empty() const { return nodes_[0].next.empty(); }

  struct Found {
    size_t begin, end;
    int32_t value;
  };
  void find_all(std::string_view text, std::vector<Found>& out) const;

 private:
  struct Node {
    std::map<unsigned char, int32_t> next;
    int32_t value = -1;
  };
  std::vector<Node> nodes_{1};
  std::array<bool, 256> begins_{};
};

// The "added_tokens" of a tokenizer.json: strings that are one token wherever they stand.
class AddedTokens {
 public:
  // `id_in_model(content)` is -1 for what the model does not know; `model_size` its number of
  // tokens.
  template <class Lookup>
  AddedTokens(const JsonPart& json, int64_t model_size, const TextNormalizer& normalizer,
              Lookup&& id_in_model) {
    for (const JsonPart& part : json.null() ? std::vector<JsonPart>{} : json.list()) {
      read(part, model_size, id_in_model(part["content"].text()));
    }
    index(normalizer);
  }

  enum class Stage : uint8_t { kGiven, kNormalized };
  // The parts of `text` in order: a token's id, or -1 and the text between.
  struct Part {
    std::string_view text;
    int32_t id;
  };
  void cut(Stage stage, std::string_view text, std::vector<Part>& out) const;
  bool none(Stage stage) const { return set(stage).empty(); }

  const std::map<int32_t, AddedToken>& by_id() const { return by_id_; }
  const AddedToken* find(std::string_view content) const;

 private:
  const StringSet& set(Stage stage) const { return stage == Stage::kGiven ? given_ : normalized_; }
  void read(const JsonPart& part, int64_t model_size, int32_t id_in_model);
  void index(const TextNormalizer& normalizer);

  std::map<int32_t, AddedToken> by_id_;
  std::map<std::string, int32_t, std::less<>> by_content_;
  StringSet given_, normalized_;
};

}  // namespace weft
