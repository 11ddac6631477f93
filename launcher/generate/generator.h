#pragma once

#include <cstdint>
#include <vector>

#include "launcher/checkpoint/loaded_model.h"

namespace weft {

struct Sampling {
  double temperature = 1.0;  // 0: always the most probable token
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;        // smallest set of most probable tokens with this probability
  double repetition_penalty = 1.0;
  uint64_t seed = 1;
};

// One token from logits [vocab], given the tokens before it. `u` in [0, 1) decides.
int32_t sample(const Sampling& how, const float* logits, int64_t vocab,
               const std::vector<int32_t>& before, double u);

// Bytes of the states carried from token to token.
int64_t carried_bytes(const ModelStage::States& states);

// Decodes a batch of sequences: prompts in chunks, then one token each per step. The tokens of a
// sequence depend on its prompt, the seed and its index, not on the rest of the batch. Every rank
// has an equal Generator with all tokens; sequence i is decoded by data rank i modulo their number.
class Generator {
 public:
  static constexpr int64_t kPrefillChunk = 512;  // tokens of one sequence at a time

  Generator(Exec& exec, const LoadedModel& model, const Sampling& sampling,
            std::vector<std::vector<int32_t>> prompts);

  // The next token of every sequence, -1 for stopped ones.
  std::vector<int32_t> next();
  void stop(size_t sequence) { stopped_[sequence] = true; }
  bool done() const;

  int64_t state_bytes() const { return carried_bytes(states_); }  // bytes of this rank

 private:
  bool is_mine(size_t sequence) const {
    return static_cast<int>(sequence % static_cast<size_t>(data_.size())) == data_.rank();
  }
  // Feeds the next tokens of each sequence; keeps the logits after the last token of each fed
  // sequence that is decoded here.
  void feed(const std::vector<std::vector<int32_t>>& tokens);
  void decode_mine(const std::vector<std::vector<int32_t>>& tokens);

  Exec& exec_;
  const LoadedModel& model_;
  HostGroup& data_;
  Sampling sampling_;
  std::vector<std::vector<int32_t>> tokens_;  // of each sequence, prompt included
  std::vector<int32_t> fed_;                  // number of tokens already in the states
  std::vector<bool> stopped_;
  std::vector<std::vector<float>> logits_;
  ModelStage::States states_;
};

}  // namespace weft
