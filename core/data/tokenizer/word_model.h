#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/data/tokenizer/json_part.h"
#include "core/data/tokenizer/vocabulary.h"
#include "core/data/tokenizer/word_scratch.h"

namespace weft {

// The "model" of a tokenizer.json: words to ids.
class WordModel {
 public:
  virtual ~WordModel() = default;

  // Appends the ids of one word.
  void encode(std::string_view word, WordScratch& scratch, std::vector<int32_t>& out) const {
    if (word.empty()) return;
    scratch.cache.encode(word, out, [&](std::string_view text, std::vector<int32_t>& ids) {
      encode_new(text, scratch, ids);
    });
  }

  const Vocabulary& vocabulary() const { return vocabulary_; }
  // Nothing joins something else with a following U+2581, so that a text may be cut there.
  virtual bool cuts_at_spaces() const { return false; }

 protected:
  explicit WordModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual void encode_new(std::string_view word, WordScratch& scratch,
                          std::vector<int32_t>& out) const = 0;

  Vocabulary vocabulary_;
};

// BPE, Unigram or WordPiece. `bytes`: words are given as plain bytes and the vocabulary spells them
// (byte-level), which only BPE knows.
std::unique_ptr<WordModel> read_word_model(const JsonPart& json, bool bytes);

}  // namespace weft
