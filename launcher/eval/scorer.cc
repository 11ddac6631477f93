#include "launcher/eval/scorer.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/host_access.h"
#include "kernels/model/cross_entropy.h"

namespace weft {
namespace {

// The next chunk of every text, concatenated, and the rows that predict a scored token.
struct Chunk {
  std::vector<int32_t> tokens, documents = {0}, targets;
  std::vector<int64_t> rows;
  std::vector<size_t> text;  // of each row
};

Chunk next_chunk(const std::vector<ScoredText>& texts, const std::vector<int32_t>& fed) {
  Chunk chunk;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto size = static_cast<int64_t>(texts[i].tokens.size());
    // The last token predicts nothing.
    const int64_t end = std::min(size - 1, fed[i] + kTokensAtOnce);
    for (int64_t at = fed[i]; at < end; ++at) {
      if (at + 1 >= texts[i].first) {
        chunk.rows.push_back(static_cast<int64_t>(chunk.tokens.size()));
        chunk.targets.push_back(texts[i].tokens[static_cast<size_t>(at) + 1]);
        chunk.text.push_back(i);
      }
      chunk.tokens.push_back(texts[i].tokens[static_cast<size_t>(at)]);
    }
    chunk.documents.push_back(static_cast<int32_t>(chunk.tokens.size()));
  }
  return chunk;
}

Tensor numbers(Exec& exec, const std::vector<int32_t>& values) {
  const Tensor out = exec.empty({static_cast<int64_t>(values.size())}, DType::kI32);
  std::copy(values.begin(), values.end(), host<int32_t>(out));
  return out;
}

void score_rows(Exec& exec, const Tensor& logits, const Chunk& chunk,
                std::vector<std::vector<TokenScore>>& out) {
  const auto rows = static_cast<int64_t>(chunk.rows.size());
  const int64_t vocab = logits.shape()[1];
  const Tensor losses = exec.empty({rows});
  kernels::cross_entropy(exec, logits, numbers(exec, chunk.targets), 1.0f, losses, {});
  for (int64_t row = 0; row < rows; ++row) {
    const float* at = host<float>(logits) + row * vocab;
    const auto best = static_cast<int32_t>(std::max_element(at, at + vocab) - at);
    const auto i = static_cast<size_t>(row);
    out[chunk.text[i]].push_back({host<float>(losses)[row], best == chunk.targets[i]});
  }
}

}  // namespace

std::vector<std::vector<TokenScore>> score(Exec& exec, const LoadedModel& model,
                                           const std::vector<ScoredText>& texts) {
  std::vector<std::vector<TokenScore>> out(texts.size());
  for (const ScoredText& text : texts) {
    WEFT_CHECK(text.first >= 1, "the first token of a text has nothing before it");
  }
  std::vector<int32_t> fed(texts.size(), 0);
  ModelStage::States states;
  while (true) {
    Chunk chunk = next_chunk(texts, fed);
    if (!model.anybody(!chunk.tokens.empty())) return out;
    if (chunk.tokens.empty()) {
      model.take_part(exec);
      continue;
    }
    const bool unscored = chunk.rows.empty();
    const std::vector<int64_t> rows = unscored ? std::vector<int64_t>{0} : chunk.rows;
    const Tensor logits = model.decode(exec, numbers(exec, chunk.tokens),
                                       make_sequence(chunk.documents, fed), rows, states);
    if (!unscored) score_rows(exec, logits, chunk, out);
    for (size_t i = 0; i < texts.size(); ++i) fed[i] += chunk.documents[i + 1] - chunk.documents[i];
  }
}

}  // namespace weft
