#pragma once

#include <cstdint>
#include <vector>

#include "launcher/checkpoint/loaded_model.h"

namespace weft {

// A run of tokens of which those from `first` on (at least 1) are predicted from all before them.
struct ScoredText {
  std::vector<int32_t> tokens;
  int64_t first = 1;
};

// Tokens of one text that pass the model at a time: their logits are held.
inline constexpr int64_t kTokensAtOnce = 512;

struct TokenScore {
  double loss = 0;         // -log p(token | tokens before it), nats
  bool preferred = false;  // no other token was more probable (the first of equals wins)
};

// For each text the scores of its tokens [first, size). Texts run side by side, in chunks with
// carried states, so that memory does not grow with their length but for the caches of softmax
// layers. Called by all ranks that share the model, with no texts where there are none left.
std::vector<std::vector<TokenScore>> score(Exec& exec, const LoadedModel& model,
                                           const std::vector<ScoredText>& texts);

}  // namespace weft
