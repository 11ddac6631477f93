#include "core/data/tokenizer/normalizer_steps.h"

#include <array>

#include "core/base/base64.h"
#include "core/base/utf8.h"
#include "core/data/tokenizer/charsmap.h"
#include "core/data/tokenizer/graphemes.h"
#include "core/data/tokenizer/unicode.h"

namespace weft {
namespace {

// SentencePiece's map as the `tokenizers` package applies it, which differs from SentencePiece
// itself: visible characters of up to five bytes are replaced whole by the replacement of their
// shortest beginning, longer ones code point by code point.
class Precompiled final : public TextNormalizer::Step {
 public:
  explicit Precompiled(Charsmap map) : map_(std::move(map)) {
    for (size_t c = 0; c < ascii_.size(); ++c)
      put_each(std::string(1, static_cast<char>(c)), ascii_[c]);
  }

  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const std::string_view rest = std::string_view(text).substr(at);
      // A plain character before another is a visible character, unless they are CR and LF.
      if (rest[0] >= 0 && rest[0] != '\r' && (rest.size() == 1 || rest[1] >= 0)) {
        out += ascii_[static_cast<size_t>(rest[0])];
        ++at;
        continue;
      }
      const std::string_view visible = rest.substr(0, grapheme_length(rest));
      if (visible.size() >= 6 || !put(visible, out)) put_each(visible, out);
      at += visible.size();
    }
    text = std::move(out);
  }

 private:
  bool put(std::string_view part, std::string& out) const {
    const auto match = map_.shortest(part);
    if (match) out += match->text;
    return match.has_value();
  }
  void put_each(std::string_view part, std::string& out) const {
    for (size_t at = 0; at < part.size();) {
      const size_t begin = at;
      next_code_point(part, at);
      const std::string_view one = part.substr(begin, at - begin);
      if (!put(one, out)) out += one;
    }
  }

  Charsmap map_;
  std::array<std::string, 128> ascii_;
};

class Strip final : public TextNormalizer::Step {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text) const override {
    if (right_) text.resize(white_space_begin(text));
    if (left_) text.erase(0, white_space_end(text));
  }

 private:
  bool left_, right_;
};

// change(c, out) appends what becomes of one code point.
class EachCodePoint final : public TextNormalizer::Step {
 public:
  using Change = void (*)(uint32_t, std::string&);
  explicit EachCodePoint(Change change) : change_(change) {}
  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) change_(next_code_point(text, at), out);
    text = std::move(out);
  }

 private:
  Change change_;
};

void lower(uint32_t c, std::string& out) {
  append_utf8(out, lower_case(c));
  if (c == 0x130) append_utf8(out, 0x307);  // the only one that becomes two
}

void without_accent(uint32_t c, std::string& out) {
  if (!is_mark(c)) append_utf8(out, c);
}

void without_nonspacing_mark(uint32_t c, std::string& out) {
  if (!is_nonspacing_mark(c)) append_utf8(out, c);
}

// Control characters and spaces as in the normalizer "nmt" of SentencePiece.
void nmt(uint32_t c, std::string& out) {
  const bool dropped = (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F ||
                       c == 0x8F || c == 0x9F;
  const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                     (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xFEFF || c == 0xFFFD;
  if (!dropped) append_utf8(out, space ? ' ' : c);
}

void clean(uint32_t c, std::string& out) {
  const bool space = is_white_space(c);
  const bool line = c == '\t' || c == '\n' || c == '\r';
  if (c == 0 || c == 0xFFFD || (!line && is_control(c))) return;
  append_utf8(out, space ? ' ' : c);
}

// A space before and behind every character of the blocks of Chinese that BERT counts as such.
void spaced(uint32_t c, std::string& out) {
  const bool chinese = (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
                       (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) ||
                       (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
                       (c >= 0x2F800 && c <= 0x2FA1F);
  if (chinese) out += ' ';
  append_utf8(out, c);
  if (chinese) out += ' ';
}

class Bert final : public TextNormalizer::Step {
 public:
  explicit Bert(const JsonPart& json)
      : clean_(json["clean_text"].flag(true)),
        chinese_(json["handle_chinese_chars"].flag(true)),
        lower_(json["lowercase"].flag(true)),
        accents_(json["strip_accents"].flag(lower_)) {}

  void apply(std::string& text) const override {
    if (clean_) EachCodePoint(clean).apply(text);
    if (chinese_) EachCodePoint(spaced).apply(text);
    if (accents_) {
      text = normalized(NormalForm::kNfd, text);
      EachCodePoint(without_nonspacing_mark).apply(text);
    }
    if (lower_) EachCodePoint(lower).apply(text);
  }

 private:
  bool clean_, chinese_, lower_, accents_;
};

}  // namespace

std::unique_ptr<TextNormalizer::Step> normalizer_step(const JsonPart& json) {
  const std::string type = json.type();
  const auto each = [](EachCodePoint::Change change) {
    return std::make_unique<EachCodePoint>(change);
  };
  if (type == "Lowercase") return each(lower);
  if (type == "StripAccents") return each(without_accent);
  if (type == "Nmt") return each(nmt);
  if (type == "BertNormalizer") return std::make_unique<Bert>(json);
  if (type == "Strip") {
    return std::make_unique<Strip>(json["strip_left"].flag(true), json["strip_right"].flag(true));
  }
  if (type != "Precompiled") return nullptr;
  const auto blob = from_base64(json["precompiled_charsmap"].text());
  auto map = blob ? Charsmap::read(*blob) : std::nullopt;
  if (!map) json["precompiled_charsmap"].refuse("not a map of SentencePiece in base64");
  return std::make_unique<Precompiled>(std::move(*map));
}

}  // namespace weft
