#pragma once

#include <cstdint>
#include <vector>

namespace weft {

// Multi-query associative recall: pairs of a key and a value, then the keys again in another order,
// each followed by its value, which can be known from the pairs alone.
//
//   k1 v1 k2 v2 ... kn vn  (gap: tokens that mean nothing)  k7 v7 k2 v2 ...
//
// Ids: 0 fills gaps, keys are [1, 1 + (vocab - 1) / 2), values the rest. Keys of an example differ;
// values may repeat.
struct RecallTask {
  int64_t vocab = 64;
  int64_t pairs = 8;
  int64_t queries =
      0;            // 0: every key once; beyond `pairs`: round after round, each in its own order
  int64_t gap = 0;  // tokens between pairs and queries
  uint64_t seed = 1;
};

struct RecallExample {
  std::vector<int32_t> tokens;
  std::vector<int64_t> answers;  // where the values to be recalled stand
};

// Refuses what has no examples: more pairs than keys.
void check_task(const RecallTask& task);

// Example `index` of the task: a function of (task, index) alone.
RecallExample recall_example(const RecallTask& task, int64_t index);

}  // namespace weft
