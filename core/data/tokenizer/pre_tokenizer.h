#pragma once

#include <memory>
#include <vector>

#include "core/data/tokenizer/json_part.h"
#include "core/data/tokenizer/pieces.h"

namespace weft {

// The "pre_tokenizer" of a tokenizer.json: cuts text into the words that merges stay inside.
// Supported: ByteLevel (as the last), Split, Digits, Metaspace, BertPreTokenizer, WhitespaceSplit,
// Whitespace, Punctuation and Sequence.
class PreTokenizer {
 public:
  class Step {
   public:
    virtual ~Step() = default;
    virtual void apply(Pieces& pieces) const = 0;
  };

  explicit PreTokenizer(const JsonPart& json);

  void apply(Pieces& pieces) const {
    for (const auto& step : steps_) step->apply(pieces);
  }
  bool bytes() const { return bytes_; }  // words are spelled in the byte alphabet
  bool empty() const { return steps_.empty(); }

 private:
  void add(const JsonPart& json, int depth);
  std::vector<std::unique_ptr<const Step>> steps_;
  bool bytes_ = false;
};

// The words of GPT-2: contractions, runs of letters, digits or others with a space before them.
extern const char* const kGpt2Pattern;
extern const char* const kLlama3Pattern;  // digits in threes, line ends with what is before them
extern const char* const kO200kPattern;   // capitals begin words
extern const char* const kQwen2Pattern;   // as kLlama3Pattern, digits one by one

}  // namespace weft
