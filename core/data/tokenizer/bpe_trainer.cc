#include "core/data/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <numeric>
#include <queue>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/data/tokenizer/byte_alphabet.h"
#include "core/data/tokenizer/pre_tokenizer.h"

namespace weft {
namespace {

using Pair = uint64_t;  // left id << 32 | right id: numeric order is the order of pairs
Pair pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

struct Word {
  std::vector<int32_t> ids;
  int64_t count;
};

struct Occurrences {
  int64_t count = 0;
  std::vector<int32_t> words;  // that hold it, or held it
};
using PairMap = std::unordered_map<Pair, Occurrences>;

// Bytes in the order of the characters that spell them: ids as other trainers give them.
std::vector<int> bytes_by_character() {
  std::vector<int> bytes(256);
  std::iota(bytes.begin(), bytes.end(), 0);
  std::sort(bytes.begin(), bytes.end(),
            [](int a, int b) { return character_of_byte(a) < character_of_byte(b); });
  return bytes;
}

class Trainer {
 public:
  Trainer(const WordCounts& counts, const BpeTraining& training, ThreadPool& threads)
      : training_(training), threads_(threads) {
    out_.tokens.resize(static_cast<size_t>(training.first_id));
    std::vector<int32_t> id_of_byte(256);
    for (const int byte : bytes_by_character()) {
      id_of_byte[static_cast<size_t>(byte)] = static_cast<int32_t>(out_.tokens.size());
      out_.tokens.emplace_back(1, static_cast<char>(byte));
    }
    for (size_t id = static_cast<size_t>(training.first_id); id < out_.tokens.size(); ++id) {
      ids_[out_.tokens[id]] = static_cast<int32_t>(id);
    }
    // Sorted, so that nothing depends on the order of a hash map.
    std::vector<const WordCounts::value_type*> sorted;
    for (const auto& word : counts) sorted.push_back(&word);
    std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->first < b->first; });
    for (const auto* word : sorted) {
      Word made{{}, word->second};
      for (const char c : word->first)
        made.ids.push_back(id_of_byte[static_cast<unsigned char>(c)]);
      words_.push_back(std::move(made));
    }
  }

  BpeVocabulary run() {
    count_pairs();
    for (const auto& [pair, found] : pairs_) queue_.push({found.count, pair});
    while (std::ssize(out_.tokens) < training_.vocab && !queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(top.pair);
      const int64_t now = found == pairs_.end() ? 0 : found->second.count;
      if (now != top.count) {
        if (now > 0) queue_.push({now, top.pair});
        continue;
      }
      if (top.count < std::max<int64_t>(1, training_.min_count)) break;
      merge(top.pair);
      if (training_.progress) training_.progress(std::ssize(out_.tokens), training_.vocab);
    }
    return std::move(out_);
  }

 private:
  struct Candidate {
    int64_t count;
    Pair pair;
    bool operator<(const Candidate& other) const {  // the most frequent first, then the lower ids
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  // Each task counts a run of words; the results are added up in order.
  void count_pairs() {
    const int64_t tasks = std::min<int64_t>(4 * threads_.size(), std::ssize(words_));
    std::vector<PairMap> parts(static_cast<size_t>(tasks));
    threads_.run(tasks, [&](int64_t t) {
      const int64_t begin = std::ssize(words_) * t / tasks,
                    end = std::ssize(words_) * (t + 1) / tasks;
      for (int64_t w = begin; w < end; ++w) count_word(w, parts[static_cast<size_t>(t)]);
    });
    for (PairMap& part : parts) {
      for (auto& [pair, found] : part) {
        Occurrences& all = pairs_[pair];
        all.count += found.count;
        all.words.insert(all.words.end(), found.words.begin(), found.words.end());
      }
      PairMap().swap(part);
    }
  }

  void count_word(int64_t w, PairMap& pairs) const {
    const Word& word = words_[static_cast<size_t>(w)];
    for (size_t i = 0; i + 1 < word.ids.size(); ++i) {
      Occurrences& found = pairs[pair_of(word.ids[i], word.ids[i + 1])];
      found.count += word.count;
      if (found.words.empty() || found.words.back() != w)
        found.words.push_back(static_cast<int32_t>(w));
    }
  }

  void merge(Pair pair) {
    const auto left = static_cast<int32_t>(pair >> 32),
               right = static_cast<int32_t>(pair & UINT32_MAX);
    const std::string token =
        out_.tokens[static_cast<size_t>(left)] + out_.tokens[static_cast<size_t>(right)];
    // Two ways can lead to the same token; it keeps its first id.
    const auto [known, fresh] = ids_.try_emplace(token, static_cast<int32_t>(out_.tokens.size()));
    if (fresh) out_.tokens.push_back(token);
    out_.merges.emplace_back(left, right);
    changed_.clear();
    const std::vector<int32_t> holders = std::exchange(pairs_[pair].words, {});
    for (const int32_t w : holders) merge_in(w, left, right, known->second);
    pairs_.erase(pair);
    std::sort(changed_.begin(), changed_.end());
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (const Pair p : changed_) {
      if (const auto found = pairs_.find(p); found != pairs_.end() && found->second.count > 0) {
        queue_.push({found->second.count, p});
      }
    }
  }

  void merge_in(int32_t w, int32_t left, int32_t right, int32_t made) {
    Word& word = words_[static_cast<size_t>(w)];
    auto& ids = word.ids;
    const auto add = [&](int32_t a, int32_t b, int64_t count) {
      Occurrences& found = pairs_[pair_of(a, b)];
      found.count += count;
      if (count < 0) return;
      if (found.words.empty() || found.words.back() != w) found.words.push_back(w);
      changed_.push_back(pair_of(a, b));
    };
    size_t to = 0;
    for (size_t from = 0; from < ids.size();) {
      if (from + 1 < ids.size() && ids[from] == left && ids[from + 1] == right) {
        if (to > 0) {
          add(ids[to - 1], left, -word.count);
          add(ids[to - 1], made, word.count);
        }
        if (from + 2 < ids.size()) {
          add(right, ids[from + 2], -word.count);
          add(made, ids[from + 2], word.count);
        }
        ids[to++] = made;
        from += 2;
      } else {
        ids[to++] = ids[from++];
      }
    }
    ids.resize(to);
  }

  const BpeTraining& training_;
  ThreadPool& threads_;
  BpeVocabulary out_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<Word> words_;
  PairMap pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<Pair> changed_;
};

}  // namespace

BpeVocabulary train_bpe(const WordCounts& words, const BpeTraining& training, ThreadPool& threads) {
  WEFT_CHECK(training.vocab >= training.first_id + 256,
             "a vocabulary of {} does not hold 256 bytes behind {}", training.vocab,
             training.first_id);
  WEFT_CHECK(words.size() < INT32_MAX, "{} different words", words.size());
  return Trainer(words, training, threads).run();
}

namespace {

nlohmann::ordered_json pre_tokenizer_of(WordPattern pattern) {
  using Json = nlohmann::ordered_json;
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", pattern == WordPattern::kGpt2}};
  if (pattern == WordPattern::kGpt2) return bytes;
  const Json split = {
      {"type", "Split"},
      {"pattern", {{"Regex", pattern == WordPattern::kLlama3 ? kLlama3Pattern : kQwen2Pattern}}},
      {"behavior", "Isolated"},
      {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}};
}

}  // namespace

std::string byte_level_json(const BpeVocabulary& vocabulary, WordPattern pattern,
                            const std::vector<std::string>& special) {
  using Json = nlohmann::ordered_json;
  Json added = Json::array();
  Json vocab = Json::object();
  for (const std::string& token : special) {
    vocab[token] = added.size();
    added.push_back({{"id", added.size()},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  for (size_t id = special.size(); id < vocabulary.tokens.size(); ++id)
    vocab[spelled(vocabulary.tokens[id])] = id;
  Json merges = Json::array();
  for (const auto& [left, right] : vocabulary.merges) {
    merges.push_back(spelled(vocabulary.tokens[static_cast<size_t>(left)]) + " " +
                     spelled(vocabulary.tokens[static_cast<size_t>(right)]));
  }
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", true},
                      {"trim_offsets", true},
                      {"use_regex", true}};
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", false},
                      {"vocab", vocab},
                      {"merges", merges}};
  const Json all = {{"version", "1.0"},
                    {"truncation", nullptr},
                    {"padding", nullptr},
                    {"added_tokens", added},
                    {"normalizer", nullptr},
                    {"pre_tokenizer", pre_tokenizer_of(pattern)},
                    {"post_processor", nullptr},
                    {"decoder", bytes},
                    {"model", model}};
  return all.dump(2) + "\n";
}

struct WordCounter::Parts {
  explicit Parts(const nlohmann::json& json) : cutter(JsonPart(json, "the pattern")) {}
  PreTokenizer cutter;
};

WordCounter::WordCounter(WordPattern pattern)
    : parts_(std::make_unique<Parts>(nlohmann::json::parse(pre_tokenizer_of(pattern).dump()))) {}
WordCounter::~WordCounter() = default;

void WordCounter::count(std::string_view text, WordCounts& counts) const {
  Pieces pieces;
  pieces.list.push_back({text, true});
  parts_->cutter.apply(pieces);
  std::string word;
  for (const Piece& piece : pieces.list) {
    word.assign(piece.text);
    ++counts[word];
  }
}

}  // namespace weft
