#include "core/data/tokenizer/word_piece.h"

#include <algorithm>

#include "core/base/error.h"

namespace weft {

WordPiece::WordPiece(const JsonPart& json) : WordModel(Vocabulary(json["vocab"])) {
  const std::string unknown = json["unk_token"].text_or("[UNK]");
  unknown_ = vocabulary_.id_of(unknown);
  if (unknown_ < 0)
    json["unk_token"].refuse(fmt::format("\"{}\" is not in the vocabulary", unknown));
  const JsonPart longest = json["max_input_chars_per_word"];
  longest_ = longest.null() ? 100 : longest.whole(0, INT32_MAX);
  const std::string prefix = json["continuing_subword_prefix"].text_or("##");
  std::vector<std::pair<std::string, int32_t>> begins, continues;
  vocabulary_.each([&](const std::string& token, int32_t id) {
    begins.emplace_back(token, id);
    if (token.starts_with(prefix)) continues.emplace_back(token.substr(prefix.size()), id);
  });
  begins_ = Trie(std::move(begins));
  continues_ = Trie(std::move(continues));
}

void WordPiece::encode_new(std::string_view word, WordScratch&, std::vector<int32_t>& out) const {
  const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  const size_t before = out.size();
  if (std::count_if(word.begin(), word.end(), starts) > longest_) return out.push_back(unknown_);
  for (size_t at = 0; at < word.size();) {
    const auto [length, id] = (at == 0 ? begins_ : continues_).longest(word.substr(at));
    if (length == 0) {
      out.resize(before);
      return out.push_back(unknown_);
    }
    out.push_back(id);
    at += length;
  }
}

}  // namespace weft
