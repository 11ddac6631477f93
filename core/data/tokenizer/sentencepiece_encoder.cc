#include "core/data/tokenizer/sentencepiece_encoder.h"

#include <algorithm>
#include <cfloat>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/data/tokenizer/metaspace.h"

namespace weft {
namespace {

using PieceType = SentencePieceModel::PieceType;
constexpr float kUnknownCost = 10;
constexpr int32_t kNoSymbol = INT32_MAX;

Trie trie_of(const SentencePieceModel& model, auto&& wanted) {
  std::vector<std::pair<std::string, int32_t>> entries;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    if (wanted(model.pieces[i].type))
      entries.emplace_back(model.pieces[i].text, static_cast<int32_t>(i));
  }
  return Trie(std::move(entries));
}

size_t character_length(std::string_view text) {
  size_t at = 0;
  next_code_point(text, at);
  return std::min(at, text.size());
}

}  // namespace

SentencePieceEncoder::SentencePieceEncoder(const SentencePieceModel& model)
    : model_(model),
      user_defined_(trie_of(model, [](PieceType t) { return t == PieceType::kUserDefined; })) {
  if (model.kind == SentencePieceModel::Kind::kBpe) {
    read_merges();
    return;
  }
  pieces_ = trie_of(
      model, [](PieceType t) { return t == PieceType::kNormal || t == PieceType::kUserDefined; });
  lowest_ = FLT_MAX;
  for (const auto& piece : model.pieces) {
    if (piece.type == PieceType::kNormal) lowest_ = std::min(lowest_, piece.score);
  }
}

SentencePieceEncoder::Prefix SentencePieceEncoder::normalized_prefix(std::string_view text) const {
  if (!user_defined_.empty()) {
    const size_t length = user_defined_.longest(text).first;
    if (length > 0) return {text.substr(0, length), length};
  }
  if (model_.charsmap) {
    if (const auto match = model_.charsmap->longest(text)) return {match->text, match->length};
  }
  const size_t length = character_length(text);
  return {text.substr(0, length), length};
}

std::string SentencePieceEncoder::normalized(std::string_view text) const {
  const std::string_view space = model_.escape_whitespaces ? kMark : " ";
  const bool remove = model_.remove_extra_whitespaces;
  while (remove && !text.empty()) {
    const Prefix prefix = normalized_prefix(text);
    if (prefix.text != " ") break;
    text.remove_prefix(prefix.length);
  }
  if (text.empty()) return "";
  std::string out;
  out.reserve(text.size() * 5 / 4 + 8);
  if (model_.add_dummy_prefix && !model_.whitespace_as_suffix) out += space;
  bool after_space = remove;
  while (!text.empty()) {
    const Prefix prefix = normalized_prefix(text);
    text.remove_prefix(prefix.length);
    std::string_view part = prefix.text;
    while (after_space && part.starts_with(' ')) part.remove_prefix(1);
    for (const char c : part) c == ' ' ? out += space : out += c;
    if (!part.empty()) after_space = part.ends_with(' ');
    after_space = after_space && remove;
  }
  while (remove && out.ends_with(space)) out.resize(out.size() - space.size());
  if (model_.add_dummy_prefix && model_.whitespace_as_suffix) out += space;
  return out;
}

void SentencePieceEncoder::encode(std::string_view text, WordScratch& scratch,
                                  std::vector<int32_t>& out) const {
  if (text.empty()) return;
  WEFT_CHECK(text.size() < INT32_MAX, "a text of {} bytes", text.size());
  const auto before = static_cast<std::ptrdiff_t>(out.size());
  if (model_.kind == SentencePieceModel::Kind::kBpe)
    encode_bpe(text, scratch, out);
  else
    encode_unigram(text, scratch, out);
  // Neighbours that are unknown are one.
  const auto both = [&](int32_t a, int32_t b) { return a == model_.unknown && b == a; };
  out.erase(std::unique(out.begin() + before, out.end(), both), out.end());
}

void SentencePieceEncoder::add_unknown(std::string_view text, std::vector<int32_t>& out) const {
  if (model_.byte_ids.empty()) return out.push_back(model_.unknown);
  for (const char c : text) out.push_back(model_.byte_ids[static_cast<unsigned char>(c)]);
}

// The best sum of scores, in f32 as in the package, since rounding decides between ways that are
// nearly equal. User-defined pieces have a score above all others.
void SentencePieceEncoder::encode_unigram(std::string_view text, WordScratch& scratch,
                                          std::vector<int32_t>& out) const {
  auto& best = scratch.best;
  best.assign(text.size() + 1, {0, -1, -1});
  const auto offer = [&](size_t begin, size_t end, float score, int32_t id) {
    if (best[end].begin < 0 || score > best[end].score)
      best[end] = {score, static_cast<int32_t>(begin), id};
  };
  const float unknown_score = lowest_ - kUnknownCost;
  for (size_t begin = 0; begin < text.size();) {
    const std::string_view rest = text.substr(begin);
    const size_t character = character_length(rest);
    const auto here = static_cast<float>(best[begin].score);
    bool single = false;
    pieces_.each_prefix(rest, [&](size_t length, int32_t id) {
      const auto& piece = model_.pieces[static_cast<size_t>(id)];
      const double bonus = 0.1 * (static_cast<double>(length) - 1);
      const float score =
          piece.type == PieceType::kUserDefined ? static_cast<float>(bonus) : piece.score;
      offer(begin, begin + length, score + here, id);
      single = single || length == character;
    });
    if (!single) offer(begin, begin + character, unknown_score + here, model_.unknown);
    begin += character;
  }
  auto& cuts = scratch.symbols;  // {id, begin, end}, from the end to the beginning
  cuts.clear();
  for (auto end = static_cast<int32_t>(text.size()); end > 0;) {
    const WordScratch::Arrival& last = best[static_cast<size_t>(end)];
    cuts.push_back({last.id, last.begin, end});
    end = last.begin;
  }
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    const auto begin = static_cast<size_t>(cut->before), end = static_cast<size_t>(cut->behind);
    if (cut->id == model_.unknown)
      add_unknown(text.substr(begin, end - begin), out);
    else
      out.push_back(cut->id);
  }
}

// Any two neighbours whose texts make a piece are merged to it, the highest score first: every way
// to cut a piece in two is a merge.
void SentencePieceEncoder::read_merges() {
  for (size_t i = 0; i < model_.pieces.size(); ++i) {
    texts_.push_back(model_.pieces[i].text);
    if (model_.pieces[i].in_text()) symbols_.emplace(texts_.back(), static_cast<int32_t>(i));
  }
  std::vector<int32_t> order;
  for (size_t i = 0; i < model_.pieces.size(); ++i) {
    if (model_.pieces[i].in_text()) order.push_back(static_cast<int32_t>(i));
    std::string_view rest = model_.pieces[i].text;
    for (; model_.pieces[i].in_text() && !rest.empty();
         rest.remove_prefix(character_length(rest))) {
      const std::string_view character = rest.substr(0, character_length(rest));
      if (symbols_.emplace(character, static_cast<int32_t>(texts_.size())).second)
        texts_.push_back(character);
    }
  }
  const auto score = [&](int32_t id) { return model_.pieces[static_cast<size_t>(id)].score; };
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return score(a) > score(b); });
  struct Found {
    int32_t left, right;
    Merges::Merge merge;
  };
  std::vector<Found> found;
  uint32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && score(order[i]) != score(order[i - 1])) ++rank;
    const std::string_view piece = texts_[static_cast<size_t>(order[i])];
    for (size_t cut = character_length(piece); cut < piece.size();
         cut += character_length(piece.substr(cut))) {
      const auto left = symbols_.find(piece.substr(0, cut));
      const auto right = symbols_.find(piece.substr(cut));
      if (left == symbols_.end() || right == symbols_.end()) continue;
      found.push_back({left->second, right->second, {rank, order[i]}});
      cuts_at_spaces_ =
          cuts_at_spaces_ && (!right->first.starts_with(kMark) || left->first.ends_with(kMark));
    }
  }
  merges_ = Merges(found.size());
  for (const Found& f : found) merges_.put(f.left, f.right, f.merge);
}

// User-defined pieces are never merged, and where no merge reaches across, words are encoded one by
// one and remembered.
void SentencePieceEncoder::encode_bpe(std::string_view text, WordScratch& scratch,
                                      std::vector<int32_t>& out) const {
  const auto encode_new = [&](std::string_view word, std::vector<int32_t>& ids) {
    encode_word(word, scratch, ids);
  };
  const auto flush = [&](std::string_view word) {
    if (!word.empty()) scratch.cache.encode(word, out, encode_new);
  };
  size_t begin = 0;
  bool after_mark = false;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const auto [length, id] = user_defined_.longest(rest);
    const bool mark = rest.starts_with(kMark);
    if (length > 0) {
      flush(text.substr(begin, at - begin));
      out.push_back(id);
      begin = at += length;
      after_mark = false;
      continue;
    }
    if (mark && !after_mark && cuts_at_spaces_) {
      flush(text.substr(begin, at - begin));
      begin = at;
    }
    after_mark = mark;
    at += character_length(rest);
  }
  flush(text.substr(begin));
}

void SentencePieceEncoder::encode_word(std::string_view word, WordScratch& scratch,
                                       std::vector<int32_t>& out) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  std::vector<std::string_view> unknown;  // characters of no piece, in order
  for (size_t at = 0; at < word.size();) {
    const size_t length = character_length(word.substr(at));
    const auto found = symbols_.find(word.substr(at, length));
    const auto place = static_cast<int32_t>(symbols.size());
    symbols.push_back({found == symbols_.end() ? kNoSymbol : found->second, place - 1, place + 1});
    if (found == symbols_.end()) unknown.push_back(word.substr(at, length));
    at += length;
  }
  symbols.back().behind = -1;
  merges_.apply(scratch);
  size_t next_unknown = 0;
  for (int32_t at = 0; at >= 0; at = symbols[static_cast<size_t>(at)].behind) {
    const int32_t id = symbols[static_cast<size_t>(at)].id;
    if (id < std::ssize(model_.pieces))
      out.push_back(id);
    else
      add_unknown(id == kNoSymbol ? unknown[next_unknown++] : texts_[static_cast<size_t>(id)], out);
  }
}

}  // namespace weft
