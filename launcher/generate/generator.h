#pragma once

#include <cstdint>
#include <vector>

#include "launcher/checkpoint/loaded_model.h"

namespace weft {

struct Sampling {
  double temperature = 1.0;  // 0: always the most probable token
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;        // the most probable tokens that hold this much together
  double repetition_penalty = 1.0;
  uint64_t seed = 1;
};

// One token from logits [vocab], given the tokens before it. `u` in [0, 1) decides.
int32_t sample(const Sampling& how, const float* logits, int64_t vocab,
               const std::vector<int32_t>& before, double u);

// What is carried from token to token.
int64_t carried_bytes(const ModelStage::States& states);

// Decodes several sequences side by side: prompts in chunks, then one token each per step. What a
// sequence gives depends on its prompt, the seed and its number, not on what runs beside it. On
// several ranks every rank has the same Generator and knows all tokens; sequence i is decoded by
// data rank i modulo their number.
class Generator {
 public:
  static constexpr int64_t kPrefillChunk = 512;  // tokens of one sequence at a time

  Generator(Exec& exec, const LoadedModel& model, const Sampling& sampling,
            std::vector<std::vector<int32_t>> prompts);

  // The next token of every sequence that is not stopped, -1 for those that are.
  std::vector<int32_t> next();
  void stop(size_t sequence) { stopped_[sequence] = true; }
  bool done() const;

  int64_t state_bytes() const { return carried_bytes(states_); }  // of this rank

 private:
  bool is_mine(size_t sequence) const {
    return static_cast<int>(sequence % static_cast<size_t>(data_.size())) == data_.rank();
  }
  // Feeds the next tokens of each sequence; keeps the logits after the last token of those that had
  // some and are decoded here.
  void feed(const std::vector<std::vector<int32_t>>& tokens);
  void decode_mine(const std::vector<std::vector<int32_t>>& tokens);

  Exec& exec_;
  const LoadedModel& model_;
  Communicator& data_;
  Sampling sampling_;
  std::vector<std::vector<int32_t>> tokens_;  // of each sequence, prompt included
  std::vector<int32_t> fed_;                  // how many of them the states have seen
  std::vector<bool> stopped_;
  std::vector<std::vector<float>> logits_;
  ModelStage::States states_;
};

}  // namespace weft
