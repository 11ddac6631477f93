#pragma once

#include <string>
#include <string_view>

namespace weft {

// A tiktoken rank file: a line for each token, its bytes in base64 and its rank, which is its id.
bool looks_like_tiktoken(std::string_view content);

// The same tokenizer as a tokenizer.json: byte-level BPE whose merges are all ways to cut a token
// in two others, in the order of ranks. `pattern` cuts text into words: gpt2, llama3, qwen2, o200k
// or a regular expression. `config`: a tokenizer_config.json with special tokens in
// added_tokens_decoder, or empty. Neither file is trusted.
struct TiktokenFile {
  std::string_view content;
  std::string name, pattern;
  std::string config, config_name;
};
std::string tiktoken_as_json(const TiktokenFile& file);

}  // namespace weft
