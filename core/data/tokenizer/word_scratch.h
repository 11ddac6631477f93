#pragma once

#include <cstdint>
#include <vector>

#include "core/data/tokenizer/word_cache.h"

namespace weft {

// Working space that a thread carries from word to word.
struct WordScratch {
  struct Symbol {
    int32_t id, before, behind;
  };
  struct Arrival {  // the best way to a place of the text, by sum of scores
    double score;
    int32_t begin, id;
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t> heap;  // rank << 32 | position, the lowest first
  std::vector<Arrival> best;
  WordCache cache;
};

}  // namespace weft
