#include "core/data/tokenizer/decoder.h"

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/data/tokenizer/byte_alphabet.h"
#include "core/data/tokenizer/metaspace.h"
#include "core/data/tokenizer/replace.h"

namespace weft {
namespace {

using Tokens = std::vector<std::string>;
// The byte of "<0x0A>"; -1 for other tokens.
int byte_of(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : 16;
    if (digit == 16) return -1;
    value = value * 16 + digit;
  }
  return value;
}

class ByteLevel final : public TokenDecoder::Step {
 public:
  Tokens apply(Tokens tokens) const override {
    std::string bytes;
    for (std::string& token : tokens) bytes += alone(std::move(token));
    return {valid_utf8(bytes)};
  }
  std::string alone(std::string token) const override { return unspelled(token).value_or(token); }
};

class ByteFallback final : public TokenDecoder::Step {
 public:
  Tokens apply(Tokens tokens) const override {
    Tokens out;
    std::string run;
    const auto flush = [&] {
      if (run.empty()) return;
      if (is_utf8(run))
        out.push_back(run);
      else
        out.insert(out.end(), run.size(), std::string(kReplacementCharacter));
      run.clear();
    };
    for (std::string& token : tokens) {
      if (const int byte = byte_of(token); byte >= 0) {
        run += static_cast<char>(byte);
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    return out;
  }
  std::string alone(std::string token) const override {
    const int byte = byte_of(token);
    return byte < 0 ? token : std::string(1, static_cast<char>(byte));
  }
};

class Fuse final : public TokenDecoder::Step {
 public:
  Tokens apply(Tokens tokens) const override {
    std::string all;
    for (const std::string& token : tokens) all += token;
    return {all};
  }
};

class MetaspaceDecoding final : public TokenDecoder::Step {
 public:
  explicit MetaspaceDecoding(const JsonPart& json) : metaspace_(json) {}
  Tokens apply(Tokens tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool swallow = i == 0 && metaspace_.scheme != Metaspace::Scheme::kNever;
      tokens[i] = replace_all(tokens[i], metaspace_.replacement, swallow ? "" : " ");
    }
    return tokens;
  }
  std::string alone(std::string token) const override {
    return replace_all(token, metaspace_.replacement, " ");
  }

 private:
  Metaspace metaspace_;
};

class ReplaceToken final : public TokenDecoder::Step {
 public:
  explicit ReplaceToken(const JsonPart& json) : replacement_(json, "decoder Replace") {}
  Tokens apply(Tokens tokens) const override {
    for (std::string& token : tokens) token = replacement_.apply(token);
    return tokens;
  }
  std::string alone(std::string token) const override { return replacement_.apply(token); }

 private:
  Replacement replacement_;
};

class StripToken final : public TokenDecoder::Step {
 public:
  explicit StripToken(const JsonPart& json)
      : content_(json["content"].text()),
        start_(json["start"].whole(0, 1 << 20)),
        stop_(json["stop"].whole(0, 1 << 20)) {
    if (content_.empty()) json["content"].refuse("one character is expected");
  }
  Tokens apply(Tokens tokens) const override {
    for (std::string& token : tokens) {
      for (int64_t i = 0; i < start_ && token.starts_with(content_); ++i)
        token.erase(0, content_.size());
      for (int64_t i = 0; i < stop_ && token.ends_with(content_); ++i) {
        token.resize(token.size() - content_.size());
      }
    }
    return tokens;
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

// A space before every token but the first and those that continue a word.
class WordPieceDecoding final : public TokenDecoder::Step {
 public:
  explicit WordPieceDecoding(const JsonPart& json)
      : prefix_(json["prefix"].text_or("##")), cleanup_(json["cleanup"].flag(true)) {}
  Tokens apply(Tokens tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = i == 0 ? cleaned(tokens[i]) : alone(std::move(tokens[i]));
    return tokens;
  }
  std::string alone(std::string token) const override {
    if (token.starts_with(prefix_)) return cleaned(token.substr(prefix_.size()));
    return cleaned(" " + token);
  }

 private:
  // Takes out spaces that a writer of English would not put there.
  std::string cleaned(std::string text) const {
    static constexpr std::pair<const char*, const char*> kChanges[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    if (!cleanup_) return text;
    for (const auto& [from, to] : kChanges) text = replace_all(text, from, to);
    return text;
  }

  std::string prefix_;
  bool cleanup_;
};

}  // namespace

TokenDecoder::TokenDecoder(const JsonPart& json) {
  joins_ = json.null();
  if (!joins_) add(json, 0);
}

void TokenDecoder::add(const JsonPart& json, int depth) {
  const std::string type = json.type();
  if (type == "ByteLevel")
    steps_.push_back(std::make_unique<ByteLevel>());
  else if (type == "ByteFallback")
    steps_.push_back(std::make_unique<ByteFallback>());
  else if (type == "Fuse")
    steps_.push_back(std::make_unique<Fuse>());
  else if (type == "Metaspace")
    steps_.push_back(std::make_unique<MetaspaceDecoding>(json));
  else if (type == "Replace")
    steps_.push_back(std::make_unique<ReplaceToken>(json));
  else if (type == "Strip")
    steps_.push_back(std::make_unique<StripToken>(json));
  else if (type == "WordPiece")
    steps_.push_back(std::make_unique<WordPieceDecoding>(json));
  else if (type == "Sequence") {
    if (depth == kDeepestSequence) json.refuse("Sequences nested too deeply");
    for (const JsonPart& part : json["decoders"].list()) add(part, depth + 1);
  } else {
    json.refuse(fmt::format(
        "the decoder {} is not supported; supported are ByteLevel, Metaspace, ByteFallback, "
        "Fuse, Strip, Replace, WordPiece and Sequence",
        type));
  }
}

std::string TokenDecoder::text_of(std::vector<std::string> tokens) const {
  if (joins_) return fmt::format("{}", fmt::join(tokens, " "));
  for (const auto& step : steps_) tokens = step->apply(std::move(tokens));
  return fmt::format("{}", fmt::join(tokens, ""));
}

std::string TokenDecoder::bytes_of(std::string token) const {
  for (const auto& step : steps_) token = step->alone(std::move(token));
  return token;
}

}  // namespace weft
