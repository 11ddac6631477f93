#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Text to token ids and back. Thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of the text alone, without any around it.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // The bytes that a token stands for in the middle of a text: not always whole characters, none
  // for special ids.
  virtual void append_bytes(int32_t id, std::string& out) const = 0;
  // The text of these ids, from its beginning. Special ids have none.
  virtual std::string decode(std::span<const int32_t> ids) const;
  virtual int64_t vocab() const = 0;  // one more than the largest id
  virtual int32_t end_of_document() const = 0;
  virtual std::string json() const = 0;  // as a tokenizer.json

  // What the tokenizer's template puts in front of a text and behind it.
  virtual std::span<const int32_t> before_text() const { return {}; }
  virtual std::span<const int32_t> behind_text() const { return {}; }

  std::vector<int32_t> encode_prompt(std::string_view text) const;  // with before_text
  // With before_text and behind_text, ended by one end_of_document.
  std::vector<int32_t> encode_document(std::string_view text) const;
};

// Whether a tokenizer must have a token that ends a document; without one, end_of_document() is -1.
enum class EndOfDocument : uint8_t { kNeeded, kOptional };

// A Hugging Face tokenizer.json, a SentencePiece .model file or a rank file of tiktoken, told apart
// by their content. `end_of_document`: the token that ends one; empty: the first of those usual for
// it that the file has. `pattern`: how a rank file cuts text into words (gpt2, llama3, qwen2, o200k
// or a regular expression); special tokens come from the tokenizer_config.json beside it. Every
// component is honoured or refused by name, with a ConfigError; the files are not trusted.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path,
                                          const std::string& end_of_document = "",
                                          EndOfDocument need = EndOfDocument::kNeeded,
                                          const std::string& pattern = "");
// From a file's content, without what stands beside it; `name` for messages.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string content, const std::string& name,
                                           const std::string& end_of_document = "",
                                           EndOfDocument need = EndOfDocument::kNeeded,
                                           const std::string& pattern = "");

// Every byte is a token, with its value as id; 256 ends a document.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kEndOfDocument = 256;

  std::vector<int32_t> encode(std::string_view text) const override;
  void append_bytes(int32_t id, std::string& out) const override;
  int64_t vocab() const override { return kEndOfDocument + 1; }
  int32_t end_of_document() const override { return kEndOfDocument; }
  std::string json() const override;
};

// Decodes token by token for a terminal: hands out whole characters only, keeps the bytes of an
// unfinished one until the next token, and puts U+FFFD for bytes that cannot become one.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  std::string push(int32_t id);
  std::string finish();  // what is unfinished at the end

 private:
  const Tokenizer* tokenizer_;
  std::string held_;
};

}  // namespace weft
