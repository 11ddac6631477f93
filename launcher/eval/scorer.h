#pragma once

#include <cstdint>
#include <vector>

#include "launcher/checkpoint/loaded_model.h"

namespace weft {

// A run of tokens; each token from `first` (at least 1) on is predicted from all tokens before it.
struct ScoredText {
  std::vector<int32_t> tokens;
  int64_t first = 1;
};

// Tokens of one text per forward pass; limits the memory of logits.
inline constexpr int64_t kTokensAtOnce = 512;

struct TokenScore {
  double loss = 0;         // -log p(token | tokens before it), nats
  bool preferred = false;  // no other token was more probable (the first of equals wins)
};

// For each text the scores of its tokens [first, size). Texts are batched and run in chunks with
// carried states, so that memory does not grow with their length, except for caches of softmax
// layers. Collective over ranks that share the model; a rank may pass no texts.
std::vector<std::vector<TokenScore>> score(Exec& exec, const LoadedModel& model,
                                           const std::vector<ScoredText>& texts);

}  // namespace weft
