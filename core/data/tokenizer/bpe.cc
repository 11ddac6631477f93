#include "core/data/tokenizer/bpe.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/data/tokenizer/byte_alphabet.h"
#include "core/data/tokenizer/metaspace.h"

namespace weft {
namespace {

// Whether something else stands before a U+2581.
bool has_inner_mark(std::string_view token) {
  for (size_t at = token.find(kMark); at != std::string_view::npos;
       at = token.find(kMark, at + 1)) {
    if (at > 0 && (at < kMark.size() || token.substr(at - kMark.size(), kMark.size()) != kMark))
      return true;
  }
  return false;
}

}  // namespace

Bpe::Bpe(const JsonPart& json, bool bytes) : WordModel(Vocabulary(json["vocab"])), bytes_(bytes) {
  read_options(json);
  read_merges(json["merges"]);
}

void Bpe::read_options(const JsonPart& json) {
  const auto& dropout = json["dropout"].value();
  if (!dropout.is_null() && dropout != 0)
    json["dropout"].refuse("dropout while encoding is not supported; null is");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!json[key].text_or("").empty())
      json[key].refuse("marks inside words are not supported; null is");
  }
  byte_fallback_ = json["byte_fallback"].flag(false);
  fuse_unknown_ = json["fuse_unk"].flag(false);
  ignore_merges_ = json["ignore_merges"].flag(false);
  if (const JsonPart unknown = json["unk_token"]; !unknown.null()) {
    unknown_ = vocabulary_.id_of(unknown.text());
    if (unknown_ < 0)
      unknown.refuse(fmt::format("\"{}\" is not in the vocabulary", unknown.text()));
  }
  for (int byte = 0; byte < 256; ++byte) {
    const std::string name =
        bytes_ ? spelled(std::string(1, static_cast<char>(byte))) : fmt::format("<0x{:02X}>", byte);
    byte_ids_[static_cast<size_t>(byte)] = vocabulary_.id_of(name);
  }
  if (!bytes_ || !ignore_merges_) return;
  vocabulary_.each([&](const std::string& token, int32_t id) {
    if (auto plain = unspelled(token)) words_.add(std::move(*plain), id);
  });
}

std::pair<std::string, std::string> Bpe::merge_at(const JsonPart& json, size_t index) const {
  const auto& merge = json.value()[index];
  const auto refuse = [&] {
    json.refuse(fmt::format(
        "entry {} is not a merge: \"left right\" or [\"left\", \"right\"] is expected", index));
  };
  if (merge.is_array()) {
    if (merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) refuse();
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (!merge.is_string()) refuse();
  const std::string text = merge.get<std::string>();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) refuse();
  return {text.substr(0, space), text.substr(space + 1)};
}

void Bpe::read_merges(const JsonPart& json) {
  if (!json.value().is_array()) json.refuse("an array of merges is expected");
  merges_ = Merges(json.value().size());
  for (size_t i = 0; i < json.value().size(); ++i) {
    const auto [left, right] = merge_at(json, i);
    const std::string both = left + right;
    for (const std::string& token : {left, right, both}) {
      if (vocabulary_.id_of(token) < 0) {
        json.refuse(
            fmt::format("entry {} merges \"{}\" and \"{}\", but \"{}\" is not in the vocabulary", i,
                        left, right, token));
      }
    }
    merges_.put(vocabulary_.id_of(left), vocabulary_.id_of(right),
                {static_cast<uint32_t>(i), vocabulary_.id_of(both)});
    cuts_at_spaces_ = cuts_at_spaces_ && !has_inner_mark(both);
  }
  cuts_at_spaces_ = cuts_at_spaces_ && !bytes_ && !ignore_merges_ && vocabulary_.id_of(kMark) >= 0;
}

void Bpe::encode_new(std::string_view word, WordScratch& scratch, std::vector<int32_t>& out) const {
  if (ignore_merges_) {
    const int32_t whole = (bytes_ ? words_ : vocabulary_).id_of(word);
    if (whole >= 0) return out.push_back(whole);
  }
  first_symbols(word, scratch.symbols);
  if (scratch.symbols.empty()) return;
  merges_.apply(scratch);
  for (int32_t at = 0; at >= 0; at = scratch.symbols[static_cast<size_t>(at)].behind) {
    out.push_back(scratch.symbols[static_cast<size_t>(at)].id);
  }
}

// Characters (byte-level: bytes) as tokens; what is not in the vocabulary becomes its bytes, the
// unknown token, or nothing.
void Bpe::first_symbols(std::string_view word, std::vector<WordScratch::Symbol>& out) const {
  out.clear();
  const auto add = [&](int32_t id) {
    const auto at = static_cast<int32_t>(out.size());
    out.push_back({id, at - 1, at + 1});
  };
  bool pending = false;  // an unknown token that may still grow
  const auto flush = [&] {
    if (pending) add(unknown_);
    pending = false;
  };
  for (size_t at = 0; at < word.size();) {
    const size_t begin = at;
    if (bytes_)
      ++at;
    else
      next_code_point(word, at);
    const std::string_view character = word.substr(begin, at - begin);
    const auto byte_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
    const int32_t id = bytes_ ? byte_id(word[begin]) : vocabulary_.id_of(character);
    if (id >= 0) {
      flush();
      add(id);
    } else if (byte_fallback_ && !bytes_ &&
               std::all_of(character.begin(), character.end(),
                           [&](char c) { return byte_id(c) >= 0; })) {
      for (const char c : character) add(byte_id(c));
    } else if (unknown_ >= 0) {
      if (!fuse_unknown_) flush();
      pending = true;
    }
  }
  flush();
  if (!out.empty()) out.back().behind = -1;
}

}  // namespace weft
