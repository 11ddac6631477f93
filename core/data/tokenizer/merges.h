#pragma once

#include <cstdint>
#include <vector>

#include "core/data/tokenizer/word_scratch.h"

namespace weft {

// The result of merging two tokens, by the pair; a flat table, since encoding is little else than
// lookups in it.
class Merges {
 public:
  struct Merge {
    uint32_t rank;  // lower is merged first
    int32_t id;
  };
  explicit Merges(size_t merges);
  void put(int32_t left, int32_t right, Merge merge);
  const Merge* find(int32_t left, int32_t right) const {
    for (size_t slot = slot_of(key_of(left, right));; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key_of(left, right)) return &slots_[slot].merge;
      if (slots_[slot].key == kEmpty) return nullptr;
    }
  }
  bool empty() const { return count_ == 0; }

  // Merges the pair of lowest rank in scratch.symbols, the leftmost among equals, until no pair can
  // be merged. The first symbol begins a list that `behind` links (-1: the last one).
  void apply(WordScratch& scratch) const;

 private:
  void apply_short(WordScratch& scratch) const;
  void apply_long(WordScratch& scratch) const;
  void put_heap(WordScratch& scratch, int32_t left) const;
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

}  // namespace weft
