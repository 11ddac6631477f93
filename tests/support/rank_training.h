#pragma once

#include <functional>
#include <vector>

#include "launcher/trainer.h"

namespace weft::test {

struct History {
  std::vector<StepResult> steps;
  std::vector<float> weights;  // whole parameters, one after the other by name
  double valid = 0;
};

// Tokens of a synthetic language: samples [first, first + rows).
using MakeBatch =
    std::function<Batch(const Config& config, Pool& pool, int64_t first, int64_t rows)>;

// Trains with ranks as threads that compare their collectives. What the first rank saw, and the weights of
// all; what several ranks hold must be the same, bit for bit.
History train_on_ranks(const Config& config, int ranks, const MakeBatch& make_batch);

}  // namespace weft::test
