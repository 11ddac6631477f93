#include "core/data/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>

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

uint64_t hash_of(std::string_view word) {
  uint64_t hash = word.size() * 0x9E3779B97F4A7C15u;
  while (word.size() >= 8) {
    uint64_t eight;
    std::memcpy(&eight, word.data(), 8);
    hash = (std::rotl(hash, 23) ^ eight) * 0x9E3779B97F4A7C15u;
    word.remove_prefix(8);
  }
  uint64_t rest = 0;
  if (!word.empty()) std::memcpy(&rest, word.data(), word.size());
  hash = (std::rotl(hash, 23) ^ rest) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

}  // namespace

MergeTable::MergeTable(size_t merges)
    : slots_(std::bit_ceil(std::max<size_t>(16, 2 * merges))), mask_(slots_.size() - 1) {}

void MergeTable::put(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  size_t slot = slot_of(key);
  while (slots_[slot].key != kEmpty && slots_[slot].key != key) slot = (slot + 1) & mask_;
  if (slots_[slot].key == kEmpty) ++count_;
  slots_[slot] = {key, merge};
}

Bpe::Bpe(const JsonPart& json, bool bytes) : bytes_(bytes) {
  const std::string type = json["type"].text_or("BPE");
  if (type != "BPE")
    json.refuse(fmt::format("the model {} is not supported; supported is BPE", type));
  read_vocabulary(json["vocab"]);
  read_options(json);
  read_merges(json["merges"]);
}

void Bpe::read_vocabulary(const JsonPart& json) {
  if (!json.value().is_object()) json.refuse("an object of tokens and ids is expected");
  const auto count = static_cast<int64_t>(json.value().size());
  // Ids index a table: they must not make it much larger than the file.
  const int64_t largest = 4 * count + (1 << 16);
  for (const auto& [token, value] : json.value().items()) {
    const int64_t id = json[token].whole(0, largest);
    if (id >= std::ssize(names_)) {
      names_.resize(static_cast<size_t>(id) + 1);
      named_.resize(names_.size());
    }
    names_[static_cast<size_t>(id)] = token;
    named_[static_cast<size_t>(id)] = true;
    vocabulary_.emplace(token, static_cast<int32_t>(id));
  }
  tokens_ = count;
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
    unknown_ = id_of(unknown.text());
    if (unknown_ < 0)
      unknown.refuse(fmt::format("\"{}\" is not in the vocabulary", unknown.text()));
  }
  for (int byte = 0; byte < 256; ++byte) {
    const std::string name =
        bytes_ ? spelled(std::string(1, static_cast<char>(byte))) : fmt::format("<0x{:02X}>", byte);
    byte_ids_[static_cast<size_t>(byte)] = id_of(name);
  }
  if (!bytes_ || !ignore_merges_) return;
  for (const auto& [token, id] : vocabulary_) {
    if (auto plain = unspelled(token)) words_.emplace(std::move(*plain), id);
  }
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
  merges_ = MergeTable(json.value().size());
  for (size_t i = 0; i < json.value().size(); ++i) {
    const auto [left, right] = merge_at(json, i);
    const std::string both = left + right;
    for (const std::string& token : {left, right, both}) {
      if (id_of(token) < 0) {
        json.refuse(
            fmt::format("entry {} merges \"{}\" and \"{}\", but \"{}\" is not in the vocabulary", i,
                        left, right, token));
      }
    }
    merges_.put(id_of(left), id_of(right), {static_cast<uint32_t>(i), id_of(both)});
    cuts_at_spaces_ = cuts_at_spaces_ && !has_inner_mark(both);
  }
  cuts_at_spaces_ = cuts_at_spaces_ && !bytes_ && !ignore_merges_ && id_of(kMark) >= 0;
}

int32_t Bpe::id_of(std::string_view token) const {
  const auto found = vocabulary_.find(token);
  return found == vocabulary_.end() ? -1 : found->second;
}

const std::string* Bpe::name_of(int32_t id) const {
  const auto at = static_cast<size_t>(id);
  return id >= 0 && at < names_.size() && named_[at] ? &names_[at] : nullptr;
}

void Bpe::encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const {
  if (word.empty()) return;
  if (word.size() > BpeScratch::kWord) return encode_new(word, scratch, out);
  const uint64_t hash = hash_of(word);
  BpeScratch::Known& known = scratch.known[hash % BpeScratch::kSlots];
  if (known.hash == hash && known.length == word.size() &&
      std::memcmp(known.word.data(), word.data(), word.size()) == 0) {
    out.insert(out.end(), known.ids.data(), known.ids.data() + known.count);
    return;
  }
  const size_t before = out.size();
  encode_new(word, scratch, out);
  const size_t count = out.size() - before;
  if (count > BpeScratch::kIds) return;
  known.hash = hash;
  known.length = static_cast<uint8_t>(word.size());
  known.count = static_cast<uint8_t>(count);
  std::memcpy(known.word.data(), word.data(), word.size());
  std::copy(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(), known.ids.begin());
}

void Bpe::encode_new(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const {
  if (ignore_merges_) {
    const Vocabulary& whole = bytes_ ? words_ : vocabulary_;
    if (const auto found = whole.find(word); found != whole.end()) {
      out.push_back(found->second);
      return;
    }
  }
  first_symbols(word, scratch.symbols);
  if (scratch.symbols.empty()) return;
  if (!merges_.empty()) scratch.symbols.size() <= 32 ? merge_short(scratch) : merge_long(scratch);
  for (int32_t at = 0; at >= 0; at = scratch.symbols[static_cast<size_t>(at)].behind) {
    out.push_back(scratch.symbols[static_cast<size_t>(at)].id);
  }
}

// Characters (byte-level: bytes) as tokens; what is not in the vocabulary becomes its bytes, the
// unknown token, or nothing.
void Bpe::first_symbols(std::string_view word, std::vector<BpeScratch::Symbol>& out) const {
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
    const int32_t id = bytes_ ? byte_id(word[begin]) : id_of(character);
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

// Looks through all pairs for the lowest rank, again and again: best for words.
void Bpe::merge_short(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  size_t count = symbols.size();
  std::array<MergeTable::Merge, 32> next{};  // of symbol i and the one behind it
  constexpr MergeTable::Merge kNone{UINT32_MAX, -1};
  const auto look = [&](size_t i) {
    const MergeTable::Merge* found = merges_.find(symbols[i].id, symbols[i + 1].id);
    next[i] = found != nullptr ? *found : kNone;
  };
  for (size_t i = 0; i + 1 < count; ++i) look(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (next[i].rank < next[best].rank) best = i;
    }
    if (next[best].id < 0) break;
    symbols[best].id = next[best].id;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i].id = symbols[i + 1].id;
      next[i] = next[i + 1];
    }
    --count;
    if (best > 0) look(best - 1);
    if (best + 1 < count) look(best);
  }
  symbols.resize(count);
  symbols.back().behind = -1;
}

// The same with a heap and links: for texts that nothing has cut into words.
void Bpe::merge_long(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  const auto symbol = [&](int32_t at) -> BpeScratch::Symbol& {
    return symbols[static_cast<size_t>(at)];
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) put_heap(scratch, static_cast<int32_t>(i));
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto left = static_cast<int32_t>(top & UINT32_MAX);
    const int32_t right = symbol(left).behind;
    if (symbol(left).id < 0 || right < 0) continue;
    const MergeTable::Merge* merge = merges_.find(symbol(left).id, symbol(right).id);
    if (merge == nullptr || merge->rank != top >> 32) continue;  // what it spoke of is gone
    symbol(left).id = merge->id;
    symbol(left).behind = symbol(right).behind;
    symbol(right).id = -1;
    if (symbol(left).behind >= 0) symbol(symbol(left).behind).before = left;
    if (symbol(left).before >= 0) put_heap(scratch, symbol(left).before);
    put_heap(scratch, left);
  }
}

void Bpe::put_heap(BpeScratch& scratch, int32_t left) const {
  const auto& here = scratch.symbols[static_cast<size_t>(left)];
  if (here.behind < 0) return;
  const auto* merge = merges_.find(here.id, scratch.symbols[static_cast<size_t>(here.behind)].id);
  if (merge == nullptr) return;
  scratch.heap.push_back(uint64_t{merge->rank} << 32 | static_cast<uint32_t>(left));
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), std::greater<>());
}

}  // namespace weft
