#include "core/data/tokenizer/hf_tokenizer.h"

#include "core/base/base64.h"
#include "core/base/error.h"
#include "core/base/json_reason.h"
#include "core/base/utf8.h"
#include "core/data/tokenizer.h"
#include "core/data/tokenizer/added_tokens.h"
#include "core/data/tokenizer/decoder.h"
#include "core/data/tokenizer/metaspace.h"
#include "core/data/tokenizer/normalizer.h"
#include "core/data/tokenizer/post_processor.h"
#include "core/data/tokenizer/pre_tokenizer.h"
#include "core/data/tokenizer/scratch_pool.h"
#include "core/data/tokenizer/sentencepiece_tokenizer.h"
#include "core/data/tokenizer/word_model.h"

namespace weft {
namespace {

// Tokens that end a document in published vocabularies, the most telling first.
constexpr const char* kEnds[] = {"<|endoftext|>", "<|end_of_text|>", "</s>",       "<eos>",
                                 "[EOS]",         "<|eos|>",         "<|im_end|>", "[SEP]"};

struct Scratch {
  WordScratch words;
  Pieces pieces;
  std::vector<AddedTokens::Part> given, normalized;
};

// The stations of a text: added tokens are taken out of it, the rest is normalized, other added
// tokens are taken out of that, the rest is cut into words, and words become tokens.
class HfTokenizer final : public Tokenizer {
 public:
  HfTokenizer(const JsonPart& json, std::string content, const std::string& end_of_document,
              EndOfDocument need)
      : content_(std::move(content)),
        normalizer_(json["normalizer"]),
        pre_tokenizer_(json["pre_tokenizer"]),
        model_(read_word_model(json["model"], pre_tokenizer_.bytes())),
        added_(json["added_tokens"], vocabulary().tokens(), normalizer_,
               [&](const std::string& token) { return vocabulary().id_of(token); }),
        decoder_(json["decoder"]),
        post_(json["post_processor"], [&](int64_t id) { return known(id); }),
        end_(end_in(json, end_of_document, need)) {
    for (const char* key : {"truncation", "padding"}) {
      if (!json[key].null())
        json[key].refuse("would cut or fill texts; Weft keeps them whole: set it to null");
    }
    largest_ = vocabulary().largest_id();
    if (!added_.by_id().empty()) largest_ = std::max(largest_, added_.by_id().rbegin()->first);
    text_bytes_.resize(static_cast<size_t>(largest_) + 1);
    for (int32_t id = 0; id <= largest_; ++id) {
      const std::string* name = name_of(id);
      if (name != nullptr && !special(id))
        text_bytes_[static_cast<size_t>(id)] = decoder_.bytes_of(*name);
    }
  }

  std::vector<int32_t> encode(std::string_view text) const override {
    if (!is_utf8(text)) throw ConfigError("a text that is not UTF-8 cannot be encoded");
    const ScratchPool<Scratch>::Borrowed scratch(pool_);
    std::vector<int32_t> ids;
    ids.reserve(text.size() / 3);
    scratch->given.clear();
    added_.cut(AddedTokens::Stage::kGiven, text, scratch->given);
    for (const AddedTokens::Part& part : scratch->given) {
      if (part.id >= 0)
        ids.push_back(part.id);
      else
        encode_part(part.text, part.text.data() == text.data(), *scratch, ids);
    }
    return ids;
  }

  void append_bytes(int32_t id, std::string& out) const override {
    WEFT_CHECK(id >= 0 && id <= largest_, "token {} of a vocabulary of {}", id, vocab());
    out += text_bytes_[static_cast<size_t>(id)];
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::vector<std::string> tokens;
    for (const int32_t id : ids) {
      const std::string* name = name_of(id);
      if (name != nullptr && !special(id)) tokens.push_back(*name);
    }
    return decoder_.text_of(std::move(tokens));
  }

  int64_t vocab() const override { return int64_t{largest_} + 1; }
  int32_t end_of_document() const override { return end_; }
  std::string json() const override { return content_; }
  std::span<const int32_t> before_text() const override { return post_.before(); }
  std::span<const int32_t> behind_text() const override { return post_.behind(); }

 private:
  void encode_part(std::string_view text, bool first, Scratch& scratch,
                   std::vector<int32_t>& ids) const {
    std::string changed;
    if (!normalizer_.empty()) {
      changed = normalizer_.apply(text);
      text = changed;
    }
    if (added_.none(AddedTokens::Stage::kNormalized))
      return encode_words(text, first, scratch, ids);
    scratch.normalized.clear();
    added_.cut(AddedTokens::Stage::kNormalized, text, scratch.normalized);
    for (const AddedTokens::Part& part : scratch.normalized) {
      if (part.id >= 0)
        ids.push_back(part.id);
      else
        encode_words(part.text, first && part.text.data() == text.data(), scratch, ids);
    }
  }

  void encode_words(std::string_view text, bool first, Scratch& scratch,
                    std::vector<int32_t>& ids) const {
    if (text.empty()) return;
    scratch.pieces.clear();
    scratch.pieces.list.push_back({text, first});
    pre_tokenizer_.apply(scratch.pieces);
    for (const Piece& piece : scratch.pieces.list) {
      if (model_->cuts_at_spaces())
        encode_at_spaces(piece.text, scratch, ids);
      else
        model_->encode(piece.text, scratch.words, ids);
    }
  }

  // A text that nothing cuts, cut where no merge can reach across: the same ids, found faster.
  void encode_at_spaces(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const {
    size_t begin = 0;
    for (size_t mark = text.find(kMark); mark != std::string_view::npos;) {
      model_->encode(text.substr(begin, mark - begin), scratch.words, ids);
      begin = mark;
      while (text.substr(mark).starts_with(kMark)) mark += kMark.size();
      mark = text.find(kMark, mark);
    }
    model_->encode(text.substr(begin), scratch.words, ids);
  }

  const Vocabulary& vocabulary() const { return model_->vocabulary(); }
  const std::string* name_of(int32_t id) const {
    const auto added = added_.by_id().find(id);
    return added != added_.by_id().end() ? &added->second.content : vocabulary().name_of(id);
  }
  bool known(int64_t id) const {
    return id <= INT32_MAX && name_of(static_cast<int32_t>(id)) != nullptr;
  }
  bool special(int32_t id) const {
    const auto added = added_.by_id().find(id);
    return added != added_.by_id().end() && added->second.special;
  }
  int32_t id_of(const std::string& token) const {
    const AddedToken* added = added_.find(token);
    return added != nullptr ? added->id : vocabulary().id_of(token);
  }

  int32_t end_in(const JsonPart& json, const std::string& asked, EndOfDocument need) const {
    if (!asked.empty()) {
      const int32_t id = id_of(asked);
      if (id < 0) json.refuse(fmt::format("has no token \"{}\" to end documents with", asked));
      return id;
    }
    for (const char* end : kEnds) {
      if (const int32_t id = id_of(end); id >= 0) return id;
    }
    if (need == EndOfDocument::kOptional) return -1;
    json.refuse(fmt::format(
        "has no token that usually ends a document ({}); name the one that does: --eod TOKEN, "
        "data.end_of_document = \"TOKEN\"",
        fmt::join(kEnds, ", ")));
  }

  std::string content_;
  TextNormalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<const WordModel> model_;
  AddedTokens added_;
  TokenDecoder decoder_;
  PostProcessor post_;
  int32_t end_;
  int32_t largest_ = 0;
  std::vector<std::string> text_bytes_;  // of every id
  mutable ScratchPool<Scratch> pool_;
};

}  // namespace

std::unique_ptr<Tokenizer> hf_tokenizer(std::string content, const std::string& name,
                                        const std::string& end_of_document, EndOfDocument need) {
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(content);
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError("{}: not JSON: {}", name, json_reason(error.what()));
  }
  const JsonPart part(json, name);
  if (!json.is_object() || !json.contains("model"))
    part.refuse("not a tokenizer.json: it has no \"model\"");
  if (const JsonPart model = part["model"]; model["type"].text_or("") == "SentencePiece") {
    auto file = from_base64(model["file"].text());
    if (!file) model["file"].refuse("not base64");
    return sentencepiece_tokenizer(std::move(*file), name, end_of_document, need);
  }
  return std::make_unique<HfTokenizer>(part, std::move(content), end_of_document, need);
}

}  // namespace weft
