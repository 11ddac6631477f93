#include "core/data/tokenizer/sentencepiece_tokenizer.h"

#include <nlohmann/json.hpp>

#include "core/base/base64.h"
#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/data/tokenizer/metaspace.h"
#include "core/data/tokenizer/replace.h"
#include "core/data/tokenizer/scratch_pool.h"
#include "core/data/tokenizer/sentencepiece_encoder.h"

namespace weft {
namespace {

using PieceType = SentencePieceModel::PieceType;

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string file, const std::string& name, const std::string& end,
                         EndOfDocument need)
      : file_(std::move(file)),
        model_(SentencePieceModel::read(file_, name)),
        encoder_(model_),
        end_(end_in(name, end, need)) {}

  std::vector<int32_t> encode(std::string_view text) const override {
    if (!is_utf8(text)) throw ConfigError("a text that is not UTF-8 cannot be encoded");
    const ScratchPool<WordScratch>::Borrowed scratch(pool_);
    std::vector<int32_t> ids;
    encoder_.encode(encoder_.normalized(text), *scratch, ids);
    return ids;
  }

  void append_bytes(int32_t id, std::string& out) const override {
    WEFT_CHECK(id >= 0 && id < vocab(), "token {} of a vocabulary of {}", id, vocab());
    const SentencePieceModel::Piece& piece = model_.pieces[static_cast<size_t>(id)];
    if (piece.type == PieceType::kByte)
      out += byte_of(piece);
    else
      out += surface(piece, piece.text);
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string text, bytes;
    bool beginning = true, mark_taken = false;
    const auto flush = [&] {
      // Each byte that begins no character is one U+FFFD, as in the package.
      for (std::string_view rest = bytes; !rest.empty();) {
        const int length = utf8_length(rest);
        text += length > 0 ? rest.substr(0, static_cast<size_t>(length)) : kReplacementCharacter;
        rest.remove_prefix(length > 0 ? static_cast<size_t>(length) : 1);
      }
      bytes.clear();
    };
    for (const int32_t id : ids) {
      const SentencePieceModel::Piece& piece = model_.pieces[static_cast<size_t>(id)];
      if (piece.type == PieceType::kByte) {
        bytes += byte_of(piece);
        continue;
      }
      flush();
      if (mark_taken || !text.empty()) beginning = false;
      std::string_view own = piece.text;
      mark_taken = false;
      const bool plain = piece.type != PieceType::kControl && piece.type != PieceType::kUnknown;
      if (plain && beginning && (model_.add_dummy_prefix || model_.remove_extra_whitespaces)) {
        mark_taken = own.starts_with(kMark) && !model_.remove_extra_whitespaces;
        if (own.starts_with(kMark)) own.remove_prefix(kMark.size());
      }
      text += surface(piece, own);
    }
    flush();
    return text;
  }

  int64_t vocab() const override { return std::ssize(model_.pieces); }
  int32_t end_of_document() const override { return end_; }
  std::string json() const override {
    const nlohmann::ordered_json all = {
        {"version", "1.0"}, {"model", {{"type", "SentencePiece"}, {"file", to_base64(file_)}}}};
    return all.dump(1) + "\n";
  }

 private:
  static char byte_of(const SentencePieceModel::Piece& piece) {
    return static_cast<char>(std::stoi(piece.text.substr(3, 2), nullptr, 16));
  }
  std::string surface(const SentencePieceModel::Piece& piece, std::string_view text) const {
    if (piece.type == PieceType::kControl) return "";
    if (piece.type == PieceType::kUnknown) return model_.unknown_surface;
    return replace_all(text, kMark, " ");
  }

  int32_t end_in(const std::string& name, const std::string& asked, EndOfDocument need) const {
    for (size_t i = 0; i < model_.pieces.size() && !asked.empty(); ++i) {
      if (model_.pieces[i].text == asked) return static_cast<int32_t>(i);
    }
    if (!asked.empty())
      throw ConfigError("{}: has no piece \"{}\" to end documents with", name, asked);
    if (model_.end_of_text) return *model_.end_of_text;
    if (need == EndOfDocument::kOptional) return -1;
    throw ConfigError(
        "{}: has no piece that ends a text; name the one that ends documents: --eod PIECE, "
        "data.end_of_document = \"PIECE\"",
        name);
  }

  std::string file_;
  SentencePieceModel model_;
  SentencePieceEncoder encoder_;
  int32_t end_;
  mutable ScratchPool<WordScratch> pool_;
};

}  // namespace

std::unique_ptr<Tokenizer> sentencepiece_tokenizer(std::string file, const std::string& name,
                                                   const std::string& end_of_document,
                                                   EndOfDocument need) {
  return std::make_unique<SentencePieceTokenizer>(std::move(file), name, end_of_document, need);
}

}  // namespace weft
