#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/data/tokenizer/merges.h"
#include "core/data/tokenizer/sentencepiece_model.h"
#include "core/data/tokenizer/trie.h"

namespace weft {

// Texts to the pieces of a SentencePiece model: normalized, then cut by unigram or bpe, to the same
// ids as that package. Unlike in its copies in tokenizer.json, pieces of type control and byte are
// never found in a text.
class SentencePieceEncoder {
 public:
  explicit SentencePieceEncoder(const SentencePieceModel& model);

  // `text`: valid UTF-8.
  std::string normalized(std::string_view text) const;
  // Appends the ids of a normalized text.
  void encode(std::string_view text, WordScratch& scratch, std::vector<int32_t>& out) const;

 private:
  struct Prefix {
    std::string_view text;
    size_t length;  // of the input
  };
  Prefix normalized_prefix(std::string_view text) const;

  void read_merges();
  void encode_unigram(std::string_view text, WordScratch& scratch, std::vector<int32_t>& out) const;
  void encode_bpe(std::string_view text, WordScratch& scratch, std::vector<int32_t>& out) const;
  void encode_word(std::string_view word, WordScratch& scratch, std::vector<int32_t>& out) const;
  void add_unknown(std::string_view text, std::vector<int32_t>& out) const;

  const SentencePieceModel& model_;
  Trie user_defined_;  // taken out of texts as they stand

  // unigram
  Trie pieces_;
  float lowest_ = 0;  // score of normal pieces

  // bpe. Pieces have their ids; further characters of pieces, which are no pieces, the next ones.
  std::unordered_map<std::string_view, int32_t> symbols_;
  std::vector<std::string_view> texts_;  // of symbols
  Merges merges_{0};
  bool cuts_at_spaces_ = true;  // no merge joins something else with a following U+2581
};

}  // namespace weft
