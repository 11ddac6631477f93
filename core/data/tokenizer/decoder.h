#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/data/tokenizer/json_part.h"

namespace weft {

// The "decoder" of a tokenizer.json: tokens back to text. Supported: ByteLevel, Metaspace,
// ByteFallback, Fuse, Strip, Replace, WordPiece and Sequence; without one, tokens are joined by
// spaces.
class TokenDecoder {
 public:
  class Step {
   public:
    virtual ~Step() = default;
    virtual std::vector<std::string> apply(std::vector<std::string> tokens) const = 0;
    // What one token in the middle of a text stands for, as bytes; steps that see only a text's
    // beginning or end leave it as it is.
    virtual std::string alone(std::string token) const { return token; }
  };

  explicit TokenDecoder(const JsonPart& json);

  std::string text_of(std::vector<std::string> tokens) const;  // valid UTF-8
  std::string bytes_of(std::string token) const;

 private:
  void add(const JsonPart& json, int depth);
  std::vector<std::unique_ptr<const Step>> steps_;
  bool joins_ = false;
};

}  // namespace weft
