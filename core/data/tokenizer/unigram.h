#pragma once

#include <array>
#include <optional>
#include <vector>

#include "core/data/tokenizer/trie.h"
#include "core/data/tokenizer/word_model.h"

namespace weft {

// The "model" of type Unigram: every token has a score, and of all ways to cut a word into tokens
// the one with the largest sum is taken. A character that is no token costs 10 more than the worst
// token and becomes the unknown token; neighbours of that kind are one, or their bytes where the
// vocabulary has them and byte_fallback is on.
class Unigram final : public WordModel {
 public:
  explicit Unigram(const JsonPart& json);

 private:
  void encode_new(std::string_view word, WordScratch& scratch,
                  std::vector<int32_t>& out) const override;
  void find_best(std::string_view word, WordScratch& scratch) const;
  void add_unknown(std::string_view text, std::vector<int32_t>& out) const;

  std::vector<double> scores_;
  Trie trie_;
  int32_t unknown_;
  double unknown_score_;
  std::array<int32_t, 256> byte_ids_;  // of <0x00> to <0xFF>; -1: none
};

}  // namespace weft
