#pragma once

#include <functional>
#include <vector>

#include "core/data/tokenizer/json_part.h"

namespace weft {

// The "post_processor" of a tokenizer.json: special tokens around a text. Supported: ByteLevel
// (which moves offsets only), TemplateProcessing, BertProcessing, RobertaProcessing and Sequence.
class PostProcessor {
 public:
  // `exists(id)`: a token of the vocabulary has it.
  PostProcessor(const JsonPart& json, const std::function<bool(int64_t)>& exists);

  const std::vector<int32_t>& before() const { return before_; }
  const std::vector<int32_t>& behind() const { return behind_; }

 private:
  void add(const JsonPart& json, int depth, const std::function<bool(int64_t)>& exists);
  void read_pair(const JsonPart& json, const std::function<bool(int64_t)>& exists);
  void read_template(const JsonPart& json, const std::function<bool(int64_t)>& exists);
  std::vector<int32_t> before_, behind_;
};

}  // namespace weft
