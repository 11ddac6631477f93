#include "core/data/tokenizer/bpe_trainer.h"

#include <map>

#include <nlohmann/json.hpp>

#include "core/base/rng.h"
#include "core/data/tokenizer.h"
#include "core/data/tokenizer/byte_alphabet.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

// The literal definition: recounts all pairs for every merge.
BpeVocabulary naive(const WordCounts& words, int64_t vocab, int64_t first_id, int64_t min_count) {
  BpeVocabulary out;
  out.tokens.resize(static_cast<size_t>(first_id));
  std::map<uint32_t, int> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes[character_of_byte(byte)] = byte;
  std::map<std::string, int32_t> ids;
  for (const auto& [character, byte] : bytes) {
    ids[std::string(1, static_cast<char>(byte))] = static_cast<int32_t>(out.tokens.size());
    out.tokens.emplace_back(1, static_cast<char>(byte));
  }
  std::vector<std::pair<std::vector<int32_t>, int64_t>> split;
  for (const auto& [word, count] : words) {
    std::vector<int32_t> parts;
    for (const char c : word) parts.push_back(ids[std::string(1, c)]);
    split.emplace_back(parts, count);
  }
  while (std::ssize(out.tokens) < vocab) {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;
    for (const auto& [parts, count] : split) {
      for (size_t i = 0; i + 1 < parts.size(); ++i) counts[{parts[i], parts[i + 1]}] += count;
    }
    std::pair<int32_t, int32_t> best;
    int64_t most = 0;
    for (const auto& [pair, count] : counts) {
      if (count > most) most = count, best = pair;  // the map's order: the lower pair of equals
    }
    if (most < std::max<int64_t>(1, min_count)) break;
    const std::string token =
        out.tokens[static_cast<size_t>(best.first)] + out.tokens[static_cast<size_t>(best.second)];
    const auto [known, fresh] = ids.try_emplace(token, static_cast<int32_t>(out.tokens.size()));
    if (fresh) out.tokens.push_back(token);
    out.merges.push_back(best);
    for (auto& [parts, count] : split) {
      std::vector<int32_t> merged;
      for (size_t i = 0; i < parts.size(); ++i) {
        const bool here =
            i + 1 < parts.size() && parts[i] == best.first && parts[i + 1] == best.second;
        merged.push_back(here ? known->second : parts[i]);
        i += here ? 1 : 0;
      }
      parts = merged;
    }
  }
  return out;
}

// Few letters and long words give many ties, overlapping pairs (aaa) and several derivations of one
// token.
WordCounts some_words(uint64_t seed) {
  WordCounts words;
  const RandomStream rng(seed, "words");
  uint64_t at = 0;
  const auto draw = [&](uint64_t n) { return static_cast<int64_t>(rng.below(at++, n)); };
  for (int i = 0; i < 120; ++i) {
    std::string word;
    for (int64_t length = 1 + draw(9); length > 0; --length)
      word += static_cast<char>('a' + draw(3));
    words[word] += 1 + draw(4);
  }
  return words;
}

TEST(BpeTrainer, FindsTheVocabularyOfTheDefinition) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const WordCounts words = some_words(seed);
    const BpeVocabulary expected = naive(words, 350, 2, 2);
    ThreadPool one(1), three(3);
    for (ThreadPool* pool : {&one, &three}) {
      const BpeVocabulary found =
          train_bpe(words, {.vocab = 350, .first_id = 2, .min_count = 2}, *pool);
      EXPECT_EQ(found.tokens, expected.tokens);
      EXPECT_EQ(found.merges, expected.merges);
    }
  }
}

TEST(BpeTrainer, WritesATokenizerThatReadsBackAndReproduces) {
  const std::string text =
      "the cat and the hat: the end, 12345 times\n\n  don't stop. \u65e5\u672c\u8a9e \u65e5\u672c ";
  for (const WordPattern pattern :
       {WordPattern::kGpt2, WordPattern::kLlama3, WordPattern::kQwen2}) {
    WordCounts words;
    WordCounter(pattern).count(text + text, words);
    ThreadPool pool(2);
    const auto vocabulary = train_bpe(words, {.vocab = 285, .first_id = 1, .min_count = 1}, pool);
    const std::string json = byte_level_json(vocabulary, pattern, {"<|endoftext|>"});
    const auto tokenizer = parse_tokenizer(json, "made");
    EXPECT_EQ(tokenizer->vocab(), 285);
    EXPECT_EQ(tokenizer->end_of_document(), 0);
    const auto ids = tokenizer->encode(text);
    EXPECT_LT(ids.size(), text.size() * 3 / 4);
    EXPECT_EQ(tokenizer->decode(ids), text);
    EXPECT_EQ(byte_level_json(vocabulary, pattern, {"<|endoftext|>"}), json);
  }
}

}  // namespace
}  // namespace weft::test
