#include "core/data/tokenizer/unigram.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/base/error.h"
#include "core/base/utf8.h"

namespace weft {
namespace {

constexpr double kUnknownPenalty = 10;

// Scores decide between sums that differ in their last bit. The `tokenizers` package reads a number
// as its digits, rounded to a double, over a power of ten, rounded again; so its value is computed
// here from the shortest digits that stand for `score`.
double rounded_twice(double score) {
  std::array<char, 40> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), score, std::chars_format::scientific);
  const std::string_view all(text.data(), static_cast<size_t>(end.ptr - text.data()));
  const size_t e = all.find('e');
  uint64_t digits = 0;
  int exponent = 0, behind_point = -1;
  for (const char c : all.substr(0, e)) {
    if (c == '.') behind_point = 0;
    if (c < '0' || c > '9') continue;
    digits = digits * 10 + static_cast<uint64_t>(c - '0');
    if (behind_point >= 0) ++behind_point;
  }
  std::from_chars(all.data() + e + (all[e + 1] == '+' ? 2 : 1), end.ptr, exponent);
  exponent -= std::max(0, behind_point);
  if (exponent >= 0 || exponent < -300) return score;
  const double size = static_cast<double>(digits) / std::pow(10.0, -exponent);
  return score < 0 ? -size : size;
}

// [token, score] in the order of ids.
Vocabulary scored_tokens(const JsonPart& json, std::vector<double>& scores) {
  Vocabulary vocabulary;
  if (!json.value().is_array()) json.refuse("an array of [token, score] is expected");
  for (const auto& entry : json.value()) {
    const bool pair = entry.is_array() && entry.size() == 2;
    if (!pair || !entry[0].is_string() || !entry[1].is_number() ||
        !std::isfinite(entry[1].get<double>())) {
      json.refuse(fmt::format("entry {} is not [token, score]", scores.size()));
    }
    vocabulary.add(entry[0].get<std::string>(), static_cast<int32_t>(scores.size()));
    scores.push_back(rounded_twice(entry[1].get<double>()));
  }
  if (scores.empty()) json.refuse("an empty vocabulary");
  return vocabulary;
}

}  // namespace

Unigram::Unigram(const JsonPart& json) : WordModel(Vocabulary()) {
  vocabulary_ = scored_tokens(json["vocab"], scores_);
  if (json["unk_id"].null())
    json["unk_id"].refuse("a Unigram model without an unknown token is not supported");
  unknown_ = static_cast<int32_t>(json["unk_id"].whole(0, std::ssize(scores_) - 1));
  unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
  byte_ids_.fill(-1);
  for (int byte = 0; byte < 256 && json["byte_fallback"].flag(false); ++byte)
    byte_ids_[static_cast<size_t>(byte)] = vocabulary_.id_of(fmt::format("<0x{:02X}>", byte));
  std::vector<std::pair<std::string, int32_t>> entries;
  vocabulary_.each([&](const std::string& token, int32_t id) { entries.emplace_back(token, id); });
  trie_ = Trie(std::move(entries));
}

// best[i]: the last token of the best way to cut the first i bytes, for every i between characters.
void Unigram::find_best(std::string_view word, WordScratch& scratch) const {
  WEFT_CHECK(word.size() < INT32_MAX, "a word of {} bytes", word.size());
  auto& best = scratch.best;
  best.assign(word.size() + 1, {0, -1, -1});
  const auto offer = [&](size_t begin, size_t end, double score, int32_t id) {
    if (best[end].begin < 0 || score > best[end].score)
      best[end] = {score, static_cast<int32_t>(begin), id};
  };
  for (size_t begin = 0; begin < word.size();) {
    size_t next = begin;
    next_code_point(word, next);
    const double here = best[begin].score;
    bool single = false;  // the character alone is a token
    trie_.each_prefix(word.substr(begin), [&](size_t length, int32_t id) {
      offer(begin, begin + length, here + scores_[static_cast<size_t>(id)], id);
      single = single || begin + length == next;
    });
    if (!single) offer(begin, next, here + unknown_score_, unknown_);
    begin = next;
  }
}

void Unigram::encode_new(std::string_view word, WordScratch& scratch,
                         std::vector<int32_t>& out) const {
  find_best(word, scratch);
  auto& cuts = scratch.symbols;  // {id, begin, end}, from the end to the beginning
  cuts.clear();
  for (auto end = static_cast<int32_t>(word.size()); end > 0;) {
    const WordScratch::Arrival& last = scratch.best[static_cast<size_t>(end)];
    if (last.id == unknown_ && !cuts.empty() && cuts.back().id == unknown_)
      cuts.back().before = last.begin;
    else
      cuts.push_back({last.id, last.begin, end});
    end = last.begin;
  }
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    const auto begin = static_cast<size_t>(cut->before), end = static_cast<size_t>(cut->behind);
    if (cut->id == unknown_)
      add_unknown(word.substr(begin, end - begin), out);
    else
      out.push_back(cut->id);
  }
}

void Unigram::add_unknown(std::string_view text, std::vector<int32_t>& out) const {
  const int32_t known = vocabulary_.id_of(text);  // the unknown token's own name, for one
  const auto byte_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (known < 0 && std::all_of(text.begin(), text.end(), [&](char c) { return byte_id(c) >= 0; })) {
    for (const char c : text) out.push_back(byte_id(c));
  } else {
    out.push_back(known >= 0 ? known : unknown_);
  }
}

}  // namespace weft
