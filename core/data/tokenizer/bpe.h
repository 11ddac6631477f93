#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/data/tokenizer/json_part.h"

namespace weft {

// What a merge of two tokens gives, by the pair; a flat table, since encoding is little else than
// looking into it.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;  // lower is merged first
    int32_t id;
  };
  explicit MergeTable(size_t merges);
  void put(int32_t left, int32_t right, Merge merge);
  const Merge* find(int32_t left, int32_t right) const {
    for (size_t slot = slot_of(key_of(left, right));; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key_of(left, right)) return &slots_[slot].merge;
      if (slots_[slot].key == kEmpty) return nullptr;
    }
  }
  bool empty() const { return count_ == 0; }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge{};
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const { return (key * 0x9E3779B97F4A7C15u >> 20) & mask_; }

  std::vector<Slot> slots_;
  size_t mask_, count_ = 0;
};

// What a thread carries from word to word: working space and the words it has met.
struct BpeScratch {
  struct Symbol {
    int32_t id, before, behind;
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;  // rank << 32 | position, the lowest first

  // Words met lately, by hash; a newer one takes the place of an older one.
  static constexpr size_t kWord = 23, kIds = 8, kSlots = 1 << 15;
  struct Known {
    uint64_t hash = 0;
    std::array<int32_t, kIds> ids{};
    uint8_t length = 0, count = 0;
    std::array<char, kWord> word{};
  };
  std::vector<Known> known = std::vector<Known>(kSlots);
};

// The "model" of a tokenizer.json of type BPE: pairs of tokens are merged, the lowest rank first,
// the leftmost among equals, until no pair can be.
class Bpe {
 public:
  // `bytes`: words are given as plain bytes and the vocabulary spells them (byte-level).
  Bpe(const JsonPart& json, bool bytes);

  // Appends the ids of one word.
  void encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const;

  int64_t tokens() const { return tokens_; }  // in the vocabulary
  int32_t largest_id() const { return static_cast<int32_t>(names_.size()) - 1; }
  int32_t id_of(std::string_view token) const;   // -1: none
  const std::string* name_of(int32_t id) const;  // as in the file; null: none

  // No merge joins something else with a following U+2581, so that a text may be cut there.
  bool cuts_at_spaces() const { return cuts_at_spaces_; }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Vocabulary = std::unordered_map<std::string, int32_t, Hash, std::equal_to<>>;

  void read_vocabulary(const JsonPart& json);
  void read_merges(const JsonPart& json);
  void read_options(const JsonPart& json);
  std::pair<std::string, std::string> merge_at(const JsonPart& json, size_t index) const;
  void first_symbols(std::string_view word, std::vector<BpeScratch::Symbol>& out) const;
  void encode_new(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const;
  void merge_short(BpeScratch& scratch) const;
  void merge_long(BpeScratch& scratch) const;
  void put_heap(BpeScratch& scratch, int32_t left) const;

  bool bytes_;
  Vocabulary vocabulary_;
  Vocabulary words_;  // bytes_ and ignore_merges: the vocabulary as plain bytes
  std::vector<std::string> names_;
  std::vector<bool> named_;
  MergeTable merges_{0};
  std::array<int32_t, 256> byte_ids_{};  // of the bytes, or of <0x00> to <0xFF>; -1: none
  int32_t unknown_ = -1;
  int64_t tokens_ = 0;
  bool byte_fallback_ = false, fuse_unknown_ = false, ignore_merges_ = false,
       cuts_at_spaces_ = true;
};

}  // namespace weft
