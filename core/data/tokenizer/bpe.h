#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/tokenizer/json_part.h"
#include "core/data/tokenizer/merges.h"
#include "core/data/tokenizer/word_model.h"

namespace weft {

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

  bool bytes_;
  Vocabulary words_;  // bytes_ and ignore_merges: the vocabulary as plain bytes
  Merges merges_{0};
  std::array<int32_t, 256> byte_ids_{};  // of the bytes, or of <0x00> to <0xFF>; -1: none
  int32_t unknown_ = -1;
  bool byte_fallback_ = false, fuse_unknown_ = false, ignore_merges_ = false,
       cuts_at_spaces_ = true;
};

}  // namespace weft
