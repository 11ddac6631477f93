#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace weft {

// Words that were encoded lately and their ids; a newer one takes the place of an older one with
// the same slot. Long words and those of many ids are not kept.
class WordCache {
 public:
  // Appends the ids of `word`, computed by encode_new(word, out) where they are not kept.
  template <class EncodeNew>
  void encode(std::string_view word, std::vector<int32_t>& out, EncodeNew&& encode_new) {
    if (word.size() > kWord) return encode_new(word, out);
    const uint64_t hash = hash_of(word);
    Known& known = known_[hash % kSlots];
    if (known.hash == hash && known.is(word)) {
      out.insert(out.end(), known.ids.data(), known.ids.data() + known.count);
      return;
    }
    const size_t before = out.size();
    encode_new(word, out);
    if (out.size() - before <= kIds)
      known.set(hash, word, out.data() + before, out.size() - before);
  }

 private:
  static constexpr size_t kWord = 23, kIds = 8, kSlots = 1 << 15;
  struct Known {
    uint64_t hash = 0;
    std::array<int32_t, kIds> ids{};
    uint8_t length = 0, count = 0;
    std::array<char, kWord> word{};

    bool is(std::string_view other) const;
    void set(uint64_t hash_of_word, std::string_view other, const int32_t* first, size_t number);
  };
  static uint64_t hash_of(std::string_view word);

  std::vector<Known> known_ = std::vector<Known>(kSlots);
};

}  // namespace weft
