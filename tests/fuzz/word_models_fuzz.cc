// Unigram and WordPiece models of any tokens, and the map of characters of a normalizer, on any
// text: refused, or ids in the vocabulary, whose tokens are the word where none is unknown.
//   input: a byte of options, lines of tokens, a zero byte, a text, a zero byte, a charsmap
//
// sources: core/data/tokenizer/bpe.cc core/data/tokenizer/byte_alphabet.cc
// sources: core/data/tokenizer/charsmap.cc core/data/tokenizer/graphemes.cc
// sources: core/data/tokenizer/json_part.cc core/data/tokenizer/merges.cc
// sources: core/data/tokenizer/normalizer.cc core/data/tokenizer/normalizer_steps.cc
// sources: core/data/tokenizer/regex.cc core/data/tokenizer/replace.cc
// sources: core/data/tokenizer/trie.cc core/data/tokenizer/unicode.cc
// sources: core/data/tokenizer/unigram.cc core/data/tokenizer/vocabulary.cc
// sources: core/data/tokenizer/word_cache.cc core/data/tokenizer/word_model.cc
// sources: core/data/tokenizer/word_piece.cc core/base/base64.cc core/base/utf8.cc
// sources: core/base/error.cc
// libraries: -lfmt -lpcre2-8 -licuuc
// seconds: 20
// seeds: tests/fuzz/seeds/word_models
#include <algorithm>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "core/base/base64.h"
#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/data/tokenizer/normalizer.h"
#include "core/data/tokenizer/word_model.h"

namespace {

using Json = nlohmann::json;

std::string_view take(std::string_view& from, char end) {
  const size_t at = std::min(from.find(end), from.size());
  const std::string_view taken = from.substr(0, at);
  from.remove_prefix(std::min(at + 1, from.size()));
  return taken;
}

// Tokens that stand twice, or are no UTF-8, are left out.
Json model_of(unsigned options, std::string_view lines) {
  std::vector<std::string> tokens = {"<unk>"};
  while (!lines.empty()) {
    const std::string token(take(lines, '\n'));
    if (weft::is_utf8(token) && std::find(tokens.begin(), tokens.end(), token) == tokens.end())
      tokens.push_back(token);
  }
  Json vocabulary = (options & 1) != 0 ? Json::array() : Json::object();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if ((options & 1) != 0)
      vocabulary.push_back(Json::array({tokens[i], -0.37 * static_cast<double>(i * i % 23)}));
    else
      vocabulary[tokens[i]] = i;
  }
  return {{"type", (options & 1) != 0 ? "Unigram" : "WordPiece"},
          {"unk_id", 0},
          {"unk_token", "<unk>"},
          {"byte_fallback", (options & 2) != 0},
          {"vocab", vocabulary}};
}

void check_ids(const weft::WordModel& model, const std::string& word) {
  weft::WordScratch scratch;
  std::vector<int32_t> ids, again;
  model.encode(word, scratch, ids);
  model.encode(word, scratch, again);  // from the cache
  if (ids != again) std::abort();
  std::string joined;
  bool unknown = false;
  for (const int32_t id : ids) {
    const std::string* name = model.vocabulary().name_of(id);
    if (name == nullptr) std::abort();
    unknown = unknown || id == 0;
    const bool continues = !joined.empty() && name->starts_with("##");
    joined += continues ? name->substr(2) : *name;
  }
  const bool marks = word.find("##") != std::string::npos || word.find("<0x") != std::string::npos;
  if (!unknown && !marks && joined.find("<0x") == std::string::npos &&
      joined.find("##") == std::string::npos && joined != word)
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  if (rest.empty()) return 0;
  const auto options = static_cast<unsigned char>(rest[0]);
  rest.remove_prefix(1);
  const std::string_view lines = take(rest, '\0');
  std::string text = weft::valid_utf8(take(rest, '\0'));
  const std::string_view map = rest;
  try {
    const Json json = {
        {"type", (options & 4) != 0 ? "Precompiled" : "BertNormalizer"},
        {"precompiled_charsmap", weft::to_base64(map)},
    };
    if ((options & 8) != 0) text = weft::TextNormalizer(weft::JsonPart(json, "fuzz")).apply(text);
    if (!weft::is_utf8(text)) std::abort();
    const Json model = model_of(options, lines);
    check_ids(*weft::read_word_model(weft::JsonPart(model, "fuzz"), /*bytes=*/false), text);
  } catch (const weft::ConfigError&) {
  }
  return 0;
}
