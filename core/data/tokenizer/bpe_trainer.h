#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/threads/thread_pool.h"

namespace weft {

// How often each word occurs in a corpus.
using WordCounts = std::unordered_map<std::string, int64_t>;

struct BpeVocabulary {
  std::vector<std::string> tokens;                  // by id, as plain bytes
  std::vector<std::pair<int32_t, int32_t>> merges;  // in order of rank
};

struct BpeTraining {
  int64_t vocab = 32000;  // tokens, the first ones and all bytes included
  int64_t first_id = 1;   // ids before it are somebody else's (special tokens)
  int64_t min_count = 2;  // a pair that occurs less often is not merged
  std::function<void(int64_t tokens, int64_t vocab)> progress = {};
};

// Byte-pair encoding over bytes: the most frequent pair of neighbours becomes a token, again and
// again; among equals the pair with the lower ids. The bytes come first, in the order of the
// characters that spell them. The result depends on the counts alone, not on the threads.
// tokens[id] is empty for ids before first_id.
BpeVocabulary train_bpe(const WordCounts& words, const BpeTraining& training, ThreadPool& threads);

// How words are cut out of text before merging.
enum class WordPattern : uint8_t { kGpt2, kLlama3, kQwen2 };

// A Hugging Face tokenizer.json of it, with `special` as ids 0, 1, ...
std::string byte_level_json(const BpeVocabulary& vocabulary, WordPattern pattern,
                            const std::vector<std::string>& special);

// Cuts text into the words that such a tokenizer merges within. Thread-safe.
class WordCounter {
 public:
  explicit WordCounter(WordPattern pattern);
  ~WordCounter();
  void count(std::string_view text, WordCounts& counts) const;  // valid UTF-8

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

}  // namespace weft
