// Multi-query associative recall: how many pairs a model can store. `weft eval recall` uses other
// examples than `weft data recall` writes.
#include <filesystem>

#include "core/base/error.h"
#include "core/data/recall_task.h"
#include "launcher/data/data.h"
#include "launcher/eval/eval.h"
#include "launcher/plot/plot.h"

namespace weft {
namespace {

struct RecallOptions {
  EvalOptions eval;
  std::vector<int64_t> pairs = {4, 8, 16, 32};
  RecallTask task{.seed = 2};
  int64_t examples = 100;
};

std::vector<double> accuracies(EvalSession& session, const RecallOptions& o) {
  std::vector<double> out;
  for (const int64_t pairs : o.pairs) {
    RecallTask task = o.task;
    task.pairs = pairs;
    const auto hits = session.map(
        o.examples,
        [&](int64_t i) {
          const RecallExample e = recall_example(task, i);
          return std::vector<ScoredText>{{e.tokens, e.answers.front()}};
        },
        [&](int64_t i, const EvalSession::Scores& scores) {
          const RecallExample e = recall_example(task, i);
          std::vector<double> sums(2, 0.0);
          for (const int64_t answer : e.answers) {
            const auto at = static_cast<size_t>(answer - e.answers.front());
            sums[0] += scores[0][at].preferred ? 1 : 0;
            sums[1] += 1;
          }
          return sums;
        });
    double right = 0, asked = 0;
    for (const auto& h : hits) right += h[0], asked += h[1];
    out.push_back(right / asked);
  }
  return out;
}

void recall(RecallOptions o, EvalSession& session) {
  if (o.task.vocab == 0) o.task.vocab = session.config().model.vocab;
  for (const int64_t pairs : o.pairs) {
    RecallTask task = o.task;
    task.pairs = pairs;
    check_task(task);
  }
  const std::vector<double> found = accuracies(session, o);
  nlohmann::json rows = nlohmann::json::array();
  Curve curve{.name = "recall"};
  if (session.speaks()) fmt::print("pairs   values recalled\n");
  for (size_t i = 0; i < o.pairs.size(); ++i) {
    if (session.speaks()) fmt::print("{:>5}   {:.2f} %\n", o.pairs[i], 100 * found[i]);
    rows.push_back({{"pairs", o.pairs[i]}, {"accuracy", found[i]}});
    curve.points.push_back({static_cast<double>(o.pairs[i]), found[i]});
  }
  const Chart chart{.title = "Associative recall",
                    .x = "pairs",
                    .y = "share of values recalled",
                    .curves = {curve}};
  session.write({{"eval", "recall"},
                 {"examples", o.examples},
                 {"gap", o.task.gap},
                 {"vocab", o.task.vocab},
                 {"rows", rows}},
                page(chart.title, {svg(chart)}));
}

struct RecallDataOptions {
  std::string out;
  std::vector<int64_t> pairs = {4, 8, 16, 32};
  RecallTask task{.vocab = 128, .seed = 1};
  int64_t documents = 20000;
  bool force = false;
};

void write_data(const RecallDataOptions& o) {
  for (const char* ending : {".bin", ".idx"}) {
    if (o.force || !std::filesystem::exists(o.out + ending)) continue;
    throw ConfigError("{}{} exists; choose another --out, or overwrite it with --force", o.out,
                      ending);
  }
  IndexedDatasetWriter writer(o.out, token_type_for(o.task.vocab));
  for (int64_t i = 0; i < o.documents; ++i) {
    RecallTask task = o.task;
    task.pairs = o.pairs[static_cast<size_t>(i) % o.pairs.size()];
    writer.add_document(recall_example(task, i).tokens);
  }
  writer.finish();
  fmt::print("{}.bin: {} tokens in {} documents; train with model.vocab = {}\n", o.out,
             writer.tokens(), o.documents, o.task.vocab);
}

void add_task(CLI::App& command, std::vector<int64_t>& pairs, RecallTask& task) {
  command.add_option("--pairs", pairs, "Numbers of pairs, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::PositiveNumber);
  command.add_option("--queries", task.queries, "Queried keys; 0: each key once")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--gap", task.gap, "Filler tokens between pairs and queries")
      ->check(CLI::NonNegativeNumber);
  command
      .add_option("--seed", task.seed, "Seed of the examples; training and evaluation must differ")
      ->capture_default_str();
}

}  // namespace

void add_eval_recall(CLI::App& eval) {
  auto o = std::make_shared<RecallOptions>();
  o->task.vocab = 0;
  CLI::App* command =
      eval.add_subcommand("recall", "Associative recall of key-value pairs, by number of pairs");
  command->footer(
      "Example: weft data recall --out pairs && weft train "
      "config.toml 'data.train=[\"pairs\"]' model.vocab=128\n"
      "         weft eval recall --checkpoint runs/recall --pairs 4,8,16,32\n"
      "JSON: examples, gap, vocab, rows [{pairs, accuracy}], checkpoint.");
  add_eval_options(*command, o->eval, Page::kYes);
  add_task(*command, o->pairs, o->task);
  command->add_option("--examples", o->examples, "Examples for each number of pairs")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--vocab", o->task.vocab, "Vocabulary of the examples; default: the model's")
      ->check(CLI::PositiveNumber);
  command->callback([o] { evaluate(o->eval, [&](EvalSession& session) { recall(*o, session); }); });
}

void add_data_recall(CLI::App& data) {
  auto o = std::make_shared<RecallDataOptions>();
  CLI::App* command =
      data.add_subcommand("recall", "Write key-value pairs to be recalled, for weft eval recall");
  command->footer("Example: weft data recall --out pairs --pairs 4,8,16 --vocab 128");
  command->add_option("--out", o->out, "Prefix of the files to write")->required();
  add_task(*command, o->pairs, o->task);
  command->add_option("--vocab", o->task.vocab, "Ids: half of them keys, half values")
      ->check(CLI::Range(3, 1 << 30))
      ->capture_default_str();
  command->add_option("--documents", o->documents, "Examples, each a document")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--force", o->force, "Overwrite");
  command->callback([o] { write_data(*o); });
}

}  // namespace weft
