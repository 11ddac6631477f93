// Any bytes as a rank file of tiktoken and, behind a zero byte, as the tokenizer_config.json beside
// it: refused, or made a tokenizer.json that lists each rank.
//
// sources: core/data/tokenizer/tiktoken.cc core/data/tokenizer/byte_alphabet.cc
// sources: core/data/tokenizer/json_part.cc core/data/tokenizer/pre_tokenizer.cc
// sources: core/data/tokenizer/regex.cc core/data/tokenizer/replace.cc
// sources: core/data/tokenizer/unicode.cc core/base/base64.cc core/base/utf8.cc
// sources: core/base/error.cc
// libraries: -lfmt -lpcre2-8 -licuuc
// seconds: 20
// seeds: tests/golden/tiktoken/gpt2 tests/golden/tiktoken/own
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "core/base/base64.h"
#include "core/base/error.h"
#include "core/data/tokenizer/tiktoken.h"

namespace {

// The first 256 ranks, so that inputs need not contain them to be read.
std::string byte_ranks() {
  std::string lines;
  for (int byte = 0; byte < 256; ++byte) {
    lines += weft::to_base64(std::string(1, static_cast<char>(byte))) + " " + std::to_string(byte);
    lines += '\n';
  }
  return lines;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string bytes = byte_ranks();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(input.find('\0'), input.size());
  const std::string ranks = bytes + std::string(input.substr(0, zero));
  const std::string config(input.substr(std::min(zero + 1, input.size())));
  try {
    const auto json =
        nlohmann::json::parse(weft::tiktoken_as_json({ranks, "fuzz", "gpt2", config, "config"}));
    if (json["model"]["vocab"].size() < 256) std::abort();
  } catch (const weft::ConfigError&) {
  }
  return 0;
}
