#include "core/data/tokenizer.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/data/tokenizer/byte_alphabet.h"

namespace weft {
std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) append_bytes(id, text);
  return text;
}

std::vector<int32_t> Tokenizer::encode_prompt(std::string_view text) const {
  std::vector<int32_t> ids(before_text().begin(), before_text().end());
  const std::vector<int32_t> own = encode(text);
  ids.insert(ids.end(), own.begin(), own.end());
  return ids;
}

std::vector<int32_t> Tokenizer::encode_document(std::string_view text) const {
  std::vector<int32_t> ids = encode_prompt(text);
  ids.insert(ids.end(), behind_text().begin(), behind_text().end());
  if (ids.empty() || ids.back() != end_of_document()) ids.push_back(end_of_document());
  return ids;
}

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids(text.size());
  for (size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
  return ids;
}

void ByteTokenizer::append_bytes(int32_t id, std::string& out) const {
  WEFT_CHECK(id >= 0 && id < vocab(), "token {} of a vocabulary of {}", id, vocab());
  if (id < kEndOfDocument) out += static_cast<char>(id);
}

std::string ByteTokenizer::json() const {
  using Json = nlohmann::ordered_json;
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[spelled(std::string(1, static_cast<char>(byte)))] = byte;
  const Json level = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", false}};
  const Json end = {{"id", kEndOfDocument}, {"content", "<|endoftext|>"},
                    {"single_word", false}, {"lstrip", false},
                    {"rstrip", false},      {"normalized", false},
                    {"special", true}};
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"vocab", vocabulary},
                      {"merges", Json::array()}};
  const Json all = {{"version", "1.0"},
                    {"truncation", nullptr},
                    {"padding", nullptr},
                    {"added_tokens", Json::array({end})},
                    {"normalizer", nullptr},
                    {"pre_tokenizer", level},
                    {"post_processor", nullptr},
                    {"decoder", level},
                    {"model", model}};
  return all.dump(2) + "\n";
}

std::string StreamDecoder::push(int32_t id) {
  tokenizer_->append_bytes(id, held_);
  std::string out;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const int length = utf8_length(rest);
    if (length < 0) break;
    if (length == 0) {
      out += kReplacementCharacter;
      rest.remove_prefix(bad_utf8_length(rest));
    } else {
      out += rest.substr(0, static_cast<size_t>(length));
      rest.remove_prefix(static_cast<size_t>(length));
    }
  }
  held_ = std::string(rest);
  return out;
}

std::string StreamDecoder::finish() {
  const bool unfinished = !held_.empty();
  held_.clear();
  return unfinished ? std::string(kReplacementCharacter) : "";
}

}  // namespace weft
