#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/tokenizer/json_part.h"
#include "core/data/tokenizer/word_model.h"

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

// The "model" of a tokenizer.json of type BPE: pairs of tokens are merged, the lowest rank first,
// the leftmost among equals, until no pair can be.
class Bpe final : public WordModel {
 public:
  // `bytes`: words are given as plain bytes and the vocabulary spells them (byte-level).
  Bpe(const JsonPart& json, bool bytes);

  bool cuts_at_spaces() const override { return cuts_at_spaces_; }

 private:
  void read_merges(const JsonPart& json);
  void read_options(const JsonPart& json);
  std::pair<std::string, std::string> merge_at(const JsonPart& json, size_t index) const;
  void encode_new(std::string_view word, WordScratch& scratch,
                  std::vector<int32_t>& out) const override;
  void first_symbols(std::string_view word, std::vector<WordScratch::Symbol>& out) const;
  void merge_short(WordScratch& scratch) const;
  void merge_long(WordScratch& scratch) const;
  void put_heap(WordScratch& scratch, int32_t left) const;

  bool bytes_;
  Vocabulary words_;  // bytes_ and ignore_merges: the vocabulary as plain bytes
  MergeTable merges_{0};
  std::array<int32_t, 256> byte_ids_{};  // of the bytes, or of <0x00> to <0xFF>; -1: none
  int32_t unknown_ = -1;
  bool byte_fallback_ = false, fuse_unknown_ = false, ignore_merges_ = false,
       cuts_at_spaces_ = true;
};

}  // namespace weft
