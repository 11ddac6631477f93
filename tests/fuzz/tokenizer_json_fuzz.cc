// Any bytes as a tokenizer.json: refused, or a tokenizer whose ids are in its vocabulary.
//
// sources: core/files/system_calls.cc core/base/nearest.cc
// sources: core/data/tokenizer/added_tokens.cc core/data/tokenizer/bpe.cc
// sources: core/data/tokenizer/byte_alphabet.cc core/data/tokenizer/charsmap.cc
// sources: core/data/tokenizer/decoder.cc core/data/tokenizer/graphemes.cc
// sources: core/data/tokenizer/hf_tokenizer.cc core/data/tokenizer/json_part.cc
// sources: core/data/tokenizer/load.cc core/data/tokenizer/merges.cc
// sources: core/data/tokenizer/sentencepiece_encoder.cc
// sources: core/data/tokenizer/sentencepiece_model.cc
// sources: core/data/tokenizer/sentencepiece_tokenizer.cc core/data/tokenizer/tiktoken.cc
// sources: core/data/tokenizer/normalizer.cc core/data/tokenizer/normalizer_steps.cc
// sources: core/data/tokenizer/post_processor.cc core/data/tokenizer/pre_tokenizer.cc
// sources: core/data/tokenizer/regex.cc core/data/tokenizer/replace.cc
// sources: core/data/tokenizer/trie.cc core/data/tokenizer/unicode.cc
// sources: core/data/tokenizer/unigram.cc core/data/tokenizer/vocabulary.cc
// sources: core/data/tokenizer/word_cache.cc core/data/tokenizer/word_model.cc
// sources: core/data/tokenizer/word_piece.cc core/data/tokenizer.cc
// sources: core/base/base64.cc core/base/utf8.cc core/files/mapped_file.cc
// sources: core/files/protobuf.cc core/files/regular_file.cc core/base/error.cc
// libraries: -lfmt -lpcre2-8 -licuuc -lxxhash
// seeds: tests/fuzz/seeds/tokenizer_json tests/golden/tokenizers
#include <cstdlib>

#include "core/base/error.h"
#include "core/data/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto tokenizer =
        weft::parse_tokenizer(std::string(reinterpret_cast<const char*>(data), size), "fuzz", "",
                              weft::EndOfDocument::kOptional);
    const auto ids = tokenizer->encode(
        "The caf\u00e9's  42 w\u00f6rds,\n\n \u65e5\u672c <s> <|endoftext|> \u2581x aaaaaaa");
    for (const int32_t id : ids) {
      if (id < 0 || id >= tokenizer->vocab()) std::abort();
    }
    tokenizer->decode(ids);
  } catch (const weft::ConfigError&) {
  }
  return 0;
}
