#include "core/data/recall_task.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/permutation.h"
#include "core/base/rng.h"

namespace weft {
namespace {

int64_t key_count(const RecallTask& task) { return (task.vocab - 1) / 2; }

}  // namespace

void check_task(const RecallTask& task) {
  if (task.pairs < 1) throw ConfigError("recall: {} pairs; at least 1", task.pairs);
  if (task.pairs > key_count(task)) {
    throw ConfigError(
        "recall: {} pairs need as many keys, but a vocabulary "
        "of {} has {}; at most {} pairs, or a vocabulary of {}",
        task.pairs, task.vocab, key_count(task), key_count(task), 2 * task.pairs + 1);
  }
}

RecallExample recall_example(const RecallTask& task, int64_t index) {
  check_task(task);
  const std::string name = fmt::format("recall {}", index);
  const Permutation keys(task.seed, name + " keys", key_count(task));
  const RandomStream values(task.seed, name + " values");
  const int64_t first_value = 1 + key_count(task);
  const auto key = [&](int64_t i) { return static_cast<int32_t>(1 + keys(i)); };
  const auto value = [&](int64_t i) {
    return static_cast<int32_t>(
        first_value +
        static_cast<int64_t>(values.below(static_cast<uint64_t>(i),
                                          static_cast<uint64_t>(task.vocab - first_value))));
  };
  RecallExample example;
  for (int64_t i = 0; i < task.pairs; ++i) {
    example.tokens.push_back(key(i));
    example.tokens.push_back(value(i));
  }
  example.tokens.insert(example.tokens.end(), static_cast<size_t>(task.gap), 0);
  const int64_t queries = task.queries > 0 ? task.queries : task.pairs;
  for (int64_t q = 0; q < queries; ++q) {
    const int64_t round = q / task.pairs;
    const Permutation order(task.seed, fmt::format("{} order {}", name, round), task.pairs);
    const int64_t pair = order(q % task.pairs);
    example.tokens.push_back(key(pair));
    example.answers.push_back(static_cast<int64_t>(example.tokens.size()));
    example.tokens.push_back(value(pair));
  }
  return example;
}

}  // namespace weft
