#include "core/data/tokenizer/word_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace weft {

uint64_t WordCache::hash_of(std::string_view word) {
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

bool WordCache::Known::is(std::string_view other) const {
  return length == other.size() && std::memcmp(word.data(), other.data(), other.size()) == 0;
}

void WordCache::Known::set(uint64_t hash_of_word, std::string_view other, const int32_t* first,
                           size_t number) {
  hash = hash_of_word;
  length = static_cast<uint8_t>(other.size());
  count = static_cast<uint8_t>(number);
  std::memcpy(word.data(), other.data(), other.size());
  std::copy_n(first, number, ids.begin());
}

}  // namespace weft
