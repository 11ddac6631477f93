#include "core/data/tokenizer/word_model.h"

#include "core/base/error.h"
#include "core/data/tokenizer/bpe.h"
#include "core/data/tokenizer/unigram.h"
#include "core/data/tokenizer/word_piece.h"

namespace weft {

std::unique_ptr<WordModel> read_word_model(const JsonPart& json, bool bytes) {
  const std::string type = json["type"].text_or("BPE");
  if (type == "BPE") return std::make_unique<Bpe>(json, bytes);
  if (type != "Unigram" && type != "WordPiece") {
    json.refuse(fmt::format(
        "the model {} is not supported; supported are BPE, Unigram and WordPiece", type));
  }
  if (bytes) json.refuse(fmt::format("{} behind the pre-tokenizer ByteLevel; BPE may be", type));
  if (type == "Unigram") return std::make_unique<Unigram>(json);
  return std::make_unique<WordPiece>(json);
}

}  // namespace weft
