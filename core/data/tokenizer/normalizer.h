#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/data/tokenizer/json_part.h"

namespace weft {

// The "normalizer" of a tokenizer.json: changes text before it is cut. Supported: NFC, NFD, NFKC,
// NFKD, Prepend, Replace, Precompiled, Strip, StripAccents, Lowercase, Nmt, BertNormalizer and
// Sequence.
class TextNormalizer {
 public:
  class Step {
   public:
    virtual ~Step() = default;
    virtual void apply(std::string& text) const = 0;  // never called with an empty text
  };

  explicit TextNormalizer(const JsonPart& json);

  bool empty() const { return steps_.empty(); }
  std::string apply(std::string_view text) const;

 private:
  void add(const JsonPart& json, int depth);
  std::vector<std::unique_ptr<const Step>> steps_;
};

}  // namespace weft
