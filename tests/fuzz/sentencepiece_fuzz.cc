// Any bytes as a SentencePiece model: refused, or a tokenizer whose ids are in its vocabulary.
//
// sources: core/data/tokenizer/charsmap.cc core/data/tokenizer/merges.cc
// sources: core/data/tokenizer/regex.cc core/data/tokenizer/replace.cc
// sources: core/data/tokenizer/json_part.cc core/data/tokenizer/sentencepiece_encoder.cc
// sources: core/data/tokenizer/sentencepiece_model.cc
// sources: core/data/tokenizer/sentencepiece_tokenizer.cc core/data/tokenizer/trie.cc
// sources: core/data/tokenizer/word_cache.cc core/data/tokenizer.cc
// sources: core/data/tokenizer/byte_alphabet.cc core/base/base64.cc core/base/utf8.cc
// sources: core/files/protobuf.cc core/base/error.cc
// libraries: -lfmt -lpcre2-8
// seconds: 20
// seeds: tests/golden/sentencepiece
#include <cstdlib>

#include "core/base/error.h"
#include "core/data/tokenizer/sentencepiece_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto tokenizer =
        weft::sentencepiece_tokenizer(std::string(reinterpret_cast<const char*>(data), size),
                                      "fuzz", "", weft::EndOfDocument::kOptional);
    const auto ids = tokenizer->encode(
        "The caf\u00e9's  42 w\u00f6rds,\n\n \u65e5\u672c <s> <tool> \u2581x aaaaaaa");
    std::string bytes;
    for (const int32_t id : ids) {
      if (id < 0 || id >= tokenizer->vocab()) std::abort();
      tokenizer->append_bytes(id, bytes);
    }
    tokenizer->decode(ids);
  } catch (const weft::ConfigError&) {
  }
  return 0;
}
