#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/data/indexed_dataset.h"
#include "core/data/tokenizer.h"
#include "launcher/eval/scorer.h"
#include "launcher/generate/model_ranks.h"

namespace weft {

// Options of every evaluation.
struct EvalOptions {
  ModelOptions model;
  std::string tokenizer, json, html;
};
enum class Page : uint8_t { kNo, kYes };  // whether the evaluation can draw its result
void add_eval_options(CLI::App& command, EvalOptions& options, Page page);

// Text to evaluate on: a dataset, or a text file that the model's tokenizer reads.
struct EvalText {
  std::string data, file;
};
void add_eval_text(CLI::App& command, EvalText& text);

// A checkpoint's model and the ranks that evaluate it. Of n data ranks, each takes every n-th group
// of texts; results are combined in the order of the texts, so that no number depends on n.
class EvalSession {
 public:
  EvalSession(const EvalOptions& options, ModelHere& here) : options_(options), here_(here) {}

  const Config& config() const { return here_.model.config(); }
  const Tokenizer& tokenizer() const;  // loaded on first use
  bool speaks() const { return here_.first(); }

  // The documents of `text`, in order.
  std::vector<std::vector<int32_t>> documents(const EvalText& text) const;

  // For items 0 .. count - 1: scores the texts of each item, converts the scores by `read`, and
  // returns the results in order of items, equal on every rank.
  using Texts = std::vector<ScoredText>;
  using Scores = std::vector<std::vector<TokenScore>>;
  std::vector<std::vector<double>> map(
      int64_t count, const std::function<Texts(int64_t)>& make,
      const std::function<std::vector<double>(int64_t, const Scores&)>& read);

  // The first rank writes the requested files. `page` is a whole HTML page.
  void write(nlohmann::json result, const std::string& page = "") const;

 private:
  void check_ids(const Texts& texts) const;

  const EvalOptions& options_;
  ModelHere& here_;
  mutable std::unique_ptr<Tokenizer> tokenizer_;
};

// Runs an evaluation on all ranks of this job.
void evaluate(const EvalOptions& options, const std::function<void(EvalSession&)>& evaluation);

void add_eval_perplexity(CLI::App& eval);
void add_eval_per_token(CLI::App& eval);
void add_eval_needle(CLI::App& eval);
void add_eval_recall(CLI::App& eval);
void add_eval_choice(CLI::App& eval);
void add_eval_logits(CLI::App& eval);

}  // namespace weft
