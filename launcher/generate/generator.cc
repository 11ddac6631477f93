#include "launcher/generate/generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/base/rng.h"
#include "core/host_access.h"

namespace weft {

int32_t sample(const Sampling& how, const float* logits, int64_t vocab,
               const std::vector<int32_t>& before, double u) {
  std::vector<double> score(logits, logits + vocab);
  if (how.repetition_penalty != 1.0) {
    for (const int32_t seen : std::set<int32_t>(before.begin(), before.end())) {
      double& s = score[static_cast<size_t>(seen)];
      s = s > 0 ? s / how.repetition_penalty : s * how.repetition_penalty;
    }
  }
  if (how.temperature == 0) {
    return static_cast<int32_t>(std::max_element(score.begin(), score.end()) - score.begin());
  }
  std::vector<int32_t> order(score.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return score[static_cast<size_t>(a)] > score[static_cast<size_t>(b)];
  });
  if (how.top_k > 0 && how.top_k < vocab) order.resize(static_cast<size_t>(how.top_k));
  const double top = score[static_cast<size_t>(order[0])];
  std::vector<double> weight;
  double sum = 0;
  for (const int32_t id : order) {
    weight.push_back(std::exp((score[static_cast<size_t>(id)] - top) / how.temperature));
    sum += weight.back();
  }
  double held = 0;
  size_t kept = 0;
  while (kept < weight.size() && (kept == 0 || held < how.top_p * sum)) held += weight[kept++];
  double left = u * held;
  for (size_t i = 0; i < kept; ++i) {
    left -= weight[i];
    if (left < 0) return order[i];
  }
  return order[kept - 1];
}

Generator::Generator(Exec& exec, const LoadedModel& model, const Sampling& sampling,
                     std::vector<std::vector<int32_t>> prompts)
    : exec_(exec),
      model_(model),
      data_(model.mesh().hosts({Axis::kData})),
      sampling_(sampling),
      tokens_(std::move(prompts)),
      fed_(tokens_.size(), 0),
      stopped_(tokens_.size(), false),
      logits_(tokens_.size()) {
  bool more = true;
  while (more) {
    more = false;
    std::vector<std::vector<int32_t>> chunk(tokens_.size());
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const auto begin = tokens_[i].begin() + fed_[i];
      const auto count = std::min<int64_t>(kPrefillChunk, tokens_[i].end() - begin);
      chunk[i].assign(begin, begin + count);
      more = more || begin + count != tokens_[i].end();
    }
    feed(chunk);
  }
}

void Generator::feed(const std::vector<std::vector<int32_t>>& tokens) {
  bool here = false, anywhere = false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    anywhere = anywhere || !tokens[i].empty();
    here = here || (is_mine(i) && !tokens[i].empty());
  }
  if (here) decode_mine(tokens);
  if (!here && anywhere && model_.shares_experts()) model_.take_part(exec_);
  for (size_t i = 0; i < tokens.size(); ++i) fed_[i] += static_cast<int32_t>(tokens[i].size());
}

void Generator::decode_mine(const std::vector<std::vector<int32_t>>& tokens) {
  std::vector<int32_t> documents = {0}, flat, before;
  std::vector<int64_t> rows;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!is_mine(i)) continue;
    flat.insert(flat.end(), tokens[i].begin(), tokens[i].end());
    documents.push_back(static_cast<int32_t>(flat.size()));
    before.push_back(fed_[i]);
    if (!tokens[i].empty()) rows.push_back(static_cast<int64_t>(flat.size()) - 1);
  }
  const Tensor ids = exec_.empty({static_cast<int64_t>(flat.size())}, DType::kI32);
  std::copy(flat.begin(), flat.end(), host<int32_t>(ids));
  const Sequence sequence = make_sequence(documents, before);
  const Tensor logits = model_.decode(exec_, ids, sequence, rows, states_);
  const int64_t vocab = logits.shape()[1];
  int64_t row = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!is_mine(i) || tokens[i].empty()) continue;
    const float* from = host<float>(logits) + row++ * vocab;
    logits_[i].assign(from, from + vocab);
  }
}

std::vector<int32_t> Generator::next() {
  std::vector<int64_t> chosen(tokens_.size(),
                              0);  // 0 for sequences of other ranks: their sum is taken
  std::vector<std::vector<int32_t>> fed(tokens_.size());
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (stopped_[i]) continue;
    if (static_cast<size_t>(fed_[i]) < tokens_[i].size()) fed[i] = {tokens_[i].back()};
  }
  feed(fed);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (stopped_[i] || !is_mine(i)) continue;
    const RandomStream stream(sampling_.seed, fmt::format("sequence {}", i));
    const auto vocab = static_cast<int64_t>(logits_[i].size());
    chosen[i] = sample(sampling_, logits_[i].data(), vocab, tokens_[i],
                       stream.uniform(static_cast<uint64_t>(tokens_[i].size())));
  }
  const std::vector<int64_t> all = data_.gather(chosen);
  std::vector<int32_t> next(tokens_.size(), -1);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (stopped_[i]) continue;
    const size_t owner = i % static_cast<size_t>(data_.size());
    next[i] = static_cast<int32_t>(all[owner * tokens_.size() + i]);
    tokens_[i].push_back(next[i]);
  }
  return next;
}

bool Generator::done() const {
  return std::find(stopped_.begin(), stopped_.end(), false) == stopped_.end();
}

int64_t carried_bytes(const ModelStage::States& states) {
  int64_t bytes = 0;
  for (const MixerState& state : states) {
    for (const auto& [name, part] : state.parts()) {
      for (const Tensor& t : part) bytes += t.bytes();
    }
  }
  return bytes;
}

}  // namespace weft
