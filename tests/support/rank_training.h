#pragma once

#include <functional>
#include <string>
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

// A hybrid with experts, a shared expert, packed documents and tied embeddings. Twelve sequences a
// step, so that 1, 2, 3, 4 and 6 data ranks can share them; odd widths where they are allowed. With
// an epsilon of 1e-3 Adam does not turn the sign of a gradient that is almost zero into a whole
// step.
Config tiny_hybrid(const std::vector<std::string>& overrides = {});

// Rows of a simple rule, each with two documents; the last target of the first does not count in
// every third row, so that ranks have different numbers of targets.
Batch rule_batch(const Config& config, Pool& pool, int64_t first, int64_t rows);

// Losses, norms, counts of experts, weights and the loss of an evaluation, as far as sums in
// another order allow: a few hundred roundings of 6e-8, which some steps of Adam amplify by at most
// lr / epsilon each. The experts must be those of a common trace: a choice between two that are
// nearly equal could turn.
void expect_same_training(const History& got, const History& want, const std::string& what);

// Rows of a rule over 61 tokens, with three documents each, one of a single token.
Batch packed_batch(const Config& config, Pool& pool, int64_t first, int64_t rows);

}  // namespace weft::test

