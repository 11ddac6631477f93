#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/train/trainer.h"
#include "tests/support/training_bounds.h"

namespace weft::test {

struct History {
  std::vector<StepResult> steps;
  std::vector<float> weights;  // whole parameters, concatenated by name
  double valid = 0;
  TrainingBounds bounds;  // unknown for results of other processes
};

// Tokens of a synthetic language: samples [first, first + rows).
using MakeBatch =
    std::function<Batch(const Config& config, Pool& pool, int64_t first, int64_t rows)>;

// Trains as one rank of `world`, whose ranks all call this; `split` forms groups of them. Returns
// the results and the combined weights of all ranks, equal on every rank. Ranks that return
// different results, or hold different numbers of the same weight, are an Error.
History train_as_rank(const Config& config, Communicator& world, const Splitter& split,
                      Signatures signatures, const MakeBatch& make_batch);

// Like train_as_rank, with ranks as threads that compare their collectives.
History train_on_ranks(const Config& config, int ranks, const MakeBatch& make_batch);

// Degrees of a layout under test.
struct LayoutCase {
  int tensor = 1, sequence = 1, pipe = 1, data = 1, expert = 1, expert_tensor = 1, zero = 1;
  const char* schedule = "1f1b";
  int virtual_stages = 1;

  int ranks() const { return tensor * sequence * pipe * data; }
  std::string name() const;
  std::vector<std::string> overrides() const;
};

// The given [model] tables, with common settings of tiny trainings: a few steps of twelve sequences
// of 23 tokens, in f32, at a constant learning rate. With an epsilon of 1e-3 Adam does not turn the
// sign of a gradient that is almost zero into a whole step.
Config tiny_config(std::string_view model, const std::vector<std::string>& overrides = {});

// Eight layers with a mixer of every family, softmax, FoX and memories; experts with a shared one,
// tied embeddings; neither vocabulary nor widths divide by the ranks. Ten steps.
Config family_hybrid(const std::vector<std::string>& overrides = {});

// Five layers with mixers of the remaining families: a rule without summaries, whose states use the
// ring (a norm inside TTT's inner model), two-sided decays, complex ones, slots, a running maximum.
// Five steps.
Config rarer_hybrid(const std::vector<std::string>& overrides = {});

// A small hybrid with experts, a shared expert and tied embeddings. Twelve sequences a step, so
// that 1, 2, 3, 4 and 6 data ranks can share them; odd widths where they are allowed.
Config tiny_hybrid(const std::vector<std::string>& overrides = {});

// Rows of a simple rule, of three kinds in turn: two documents, of which the second crosses every
// border between 2, 3 or 4 sequence ranks but one; two, the second of which starts with the span of
// the second of two ranks; one that covers the spans of all ranks. The last target of a document
// does not count in the first kind, so that ranks have different numbers of targets.
Batch rule_batch(const Config& config, Pool& pool, int64_t first, int64_t rows);

// Losses, norms, counts of experts, weights and the loss of an evaluation, within the rounding of
// sums in another order: losses and weights within want.bounds and within a few hundred roundings
// of 6e-8; so are norms, which some steps of Adam amplify by at most lr / epsilon each. The largest
// share of a bound that was used is a property of the test. Experts must come from a common routing
// trace, since near ties could resolve differently.
void expect_same_training(const History& got, const History& want, const std::string& what);
void expect_same_bits(const History& got, const History& want, const std::string& what);

// Rows of a rule over 61 tokens, with three documents each, one of a single token.
Batch packed_batch(const Config& config, Pool& pool, int64_t first, int64_t rows);

}  // namespace weft::test
