// Any bytes as a tokenizer.json: refused, or a tokenizer whose ids are in its vocabulary.
//
// sources: core/tokenizer/added_tokens.cc core/tokenizer/bpe.cc core/tokenizer/byte_alphabet.cc
// sources: core/tokenizer/decoder.cc core/tokenizer/hf_tokenizer.cc core/tokenizer/json_part.cc
// sources: core/tokenizer/normalizer.cc core/tokenizer/post_processor.cc
// sources: core/tokenizer/pre_tokenizer.cc core/tokenizer/regex.cc core/tokenizer/replace.cc
// sources: core/tokenizer/unicode.cc core/tokenizer.cc core/utf8.cc core/mapped_file.cc core/regular_file.cc
// sources: core/error.cc
// libraries: -lfmt -lpcre2-8 -licuuc -lxxhash
// seeds: tests/fuzz/seeds/tokenizer_json tests/golden/tokenizers
#include <cstdlib>

#include "core/error.h"
#include "core/tokenizer.h"

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
