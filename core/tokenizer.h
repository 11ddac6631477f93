#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Text to token ids and back.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::vector<int32_t> encode(
      std::string_view text) const = 0;  // no id of its own at the end
  // The bytes that a token stands for: not always whole characters, none for special ids.
  virtual void append_bytes(int32_t id, std::string& out) const = 0;
  virtual int64_t vocab() const = 0;
  virtual int32_t end_of_document() const = 0;
  virtual std::string json() const = 0;  // as a Hugging Face tokenizer.json

  // All bytes, unchanged: decode(encode(text)) == text.
  std::string decode(std::span<const int32_t> ids) const;
};

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
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::string push(int32_t id);
  std::string finish();  // what is unfinished at the end

 private:
  const Tokenizer& tokenizer_;
  std::string held_;
};

}  // namespace weft
