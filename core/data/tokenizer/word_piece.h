#pragma once

#include "core/data/tokenizer/trie.h"
#include "core/data/tokenizer/word_model.h"

namespace weft {

// The "model" of type WordPiece: the longest token that a word begins with, then the longest of
// those with a prefix ("##") that its rest begins with, and so on. A word that cannot be cut so, or
// is too long, is one unknown token.
class WordPiece final : public WordModel {
 public:
  explicit WordPiece(const JsonPart& json);

 private:
  void encode_new(std::string_view word, WordScratch& scratch,
                  std::vector<int32_t>& out) const override;

  Trie begins_, continues_;  // the second without the prefix
  int32_t unknown_;
  int64_t longest_;  // characters of a word
};

}  // namespace weft
