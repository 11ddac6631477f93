#include "launcher/eval/eval.h"

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "core/base/error.h"
#include "launcher/app/commands.h"
#include "launcher/app/measure.h"
#include "launcher/data/tokenizer_files.h"

namespace weft {
namespace {

// Items with their numbers, as bytes: [item, count, numbers...] each.
std::string packed(const std::vector<std::pair<int64_t, std::vector<double>>>& items) {
  std::string bytes;
  const auto put = [&](const void* from, size_t size) {
    bytes.append(static_cast<const char*>(from), size);
  };
  for (const auto& [item, numbers] : items) {
    const auto count = static_cast<int64_t>(numbers.size());
    put(&item, sizeof item);
    put(&count, sizeof count);
    put(numbers.data(), numbers.size() * sizeof(double));
  }
  return bytes;
}

void unpack(const std::string& bytes, std::vector<std::vector<double>>& out) {
  for (size_t at = 0; at < bytes.size();) {
    int64_t head[2];
    std::memcpy(head, bytes.data() + at, sizeof head);
    at += sizeof head;
    std::vector<double>& numbers = out.at(static_cast<size_t>(head[0]));
    numbers.resize(static_cast<size_t>(head[1]));
    std::memcpy(numbers.data(), bytes.data() + at, numbers.size() * sizeof(double));
    at += numbers.size() * sizeof(double);
  }
}

// Progress line on a terminal.
class EvalProgress {
 public:
  EvalProgress(bool shown, int64_t count) : shown_(shown && isatty(STDERR_FILENO)), count_(count) {}
  ~EvalProgress() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }
  EvalProgress(const EvalProgress&) = delete;
  EvalProgress& operator=(const EvalProgress&) = delete;
  void at(int64_t done) const {
    if (shown_) fmt::print(stderr, "\r{} of {}", done, count_);
  }

 private:
  bool shown_;
  int64_t count_;
};

}  // namespace

void add_eval_options(CLI::App& command, EvalOptions& options, Page page) {
  add_model_options(command, options.model);
  command.add_option("--tokenizer", options.tokenizer,
                     "A tokenizer.json; default: the one kept with the checkpoint");
  command.add_option("--json", options.json, "Writes the result to this file");
  if (page == Page::kYes) {
    command.add_option("--html", options.html, "Writes a page with charts of the result");
  }
}

void add_eval_text(CLI::App& command, EvalText& text) {
  CLI::Option* data = command.add_option("--data", text.data, "A dataset: prefix, .bin or .idx");
  command.add_option("--text", text.file, "A text file, read by the model's tokenizer")
      ->excludes(data);
}

void evaluate(const EvalOptions& options, const std::function<void(EvalSession&)>& evaluation) {
  with_model(options.model, [&](ModelHere& here) {
    EvalSession session(options, here);
    evaluation(session);
  });
}

const Tokenizer& EvalSession::tokenizer() const {
  if (!tokenizer_) {
    tokenizer_ = tokenizer_of_checkpoint(here_.found, config(), options_.tokenizer);
  }
  return *tokenizer_;
}

std::vector<std::vector<int32_t>> EvalSession::documents(const EvalText& text) const {
  std::vector<std::vector<int32_t>> out;
  if (!text.data.empty()) {
    const IndexedDataset data(text.data);
    data.check_tokens(config().model.vocab);
    for (int64_t d = 0; d < data.documents(); ++d) out.push_back(data.read(d));
    return out;
  }
  if (text.file.empty()) {
    throw ConfigError("no text to evaluate: give --data PREFIX (weft data build) or --text FILE");
  }
  std::ifstream file(text.file, std::ios::binary);
  if (!file) throw ConfigError("--text {}: cannot be read", text.file);
  std::ostringstream all;
  all << file.rdbuf();
  out.push_back(tokenizer().encode_prompt(all.str()));
  return out;
}

void EvalSession::check_ids(const Texts& texts) const {
  const int64_t vocab = config().model.vocab;
  for (const ScoredText& text : texts) {
    for (const int32_t id : text.tokens) {
      if (id >= 0 && id < vocab) continue;
      throw ConfigError(
          "{}: the model has {} ids, but the text needs "
          "id {}; it was trained with another tokenizer",
          here_.found.path, vocab, id);
    }
  }
}

std::vector<std::vector<double>> EvalSession::map(
    int64_t count, const std::function<Texts(int64_t)>& make,
    const std::function<std::vector<double>(int64_t, const Scores&)>& read) {
  // Items are scored in fixed groups, so that batches do not depend on the number of ranks. All
  // ranks run the same number of rounds, perhaps without texts at the end, because scoring is
  // collective for ranks that share experts.
  constexpr int64_t kGroup = 4;
  Exec& exec = here_.runtime.exec();
  HostGroup& data = here_.data_ranks();
  const int64_t round = kGroup * data.size();
  std::vector<std::pair<int64_t, std::vector<double>>> mine;
  const EvalProgress progress(speaks(), count);
  for (int64_t done = 0; done < count; done += round) {
    Texts texts;
    std::vector<size_t> ends;
    const int64_t begin = std::min(count, done + data.rank() * kGroup),
                  end = std::min(count, begin + kGroup);
    for (int64_t item = begin; item < end; ++item) {
      for (ScoredText& text : make(item)) texts.push_back(std::move(text));
      ends.push_back(texts.size());
    }
    check_ids(texts);
    Scores scores = score(exec, here_.model, texts);
    size_t from = 0;
    for (int64_t item = begin; item < end; ++item) {
      const size_t to = ends[static_cast<size_t>(item - begin)];
      const Scores part(std::make_move_iterator(scores.begin() + static_cast<std::ptrdiff_t>(from)),
                        std::make_move_iterator(scores.begin() + static_cast<std::ptrdiff_t>(to)));
      mine.emplace_back(item, read(item, part));
      from = to;
    }
    progress.at(std::min(count, done + round));
  }
  std::vector<std::vector<double>> out(static_cast<size_t>(count));
  for (const std::string& bytes : data.gather_texts(packed(mine))) {
    unpack(bytes, out);
  }
  return out;
}

void EvalSession::write(nlohmann::json result, const std::string& page) const {
  if (!speaks()) return;
  result["checkpoint"] = here_.found.path;
  if (!options_.json.empty()) write_json(options_.json, result);
  if (options_.html.empty()) return;
  std::ofstream file(options_.html);
  file << page;
  if (!file.flush()) throw ConfigError("--html {}: cannot be written", options_.html);
  fmt::print("picture: {}\n", options_.html);
}

void add_eval(CLI::App& app) {
  CLI::App* eval = app.add_subcommand("eval", "Evaluate the model of a checkpoint");
  eval->footer(
      "Example: weft eval perplexity --checkpoint runs/quickstart --data runs/quickstart/corpus\n"
      "Under mpirun the ranks share the texts; results are bit-identical for any number of them.\n"
      "parallel.tensor=N, parallel.expert=N, "
      "parallel.expert_tensor=N also split the model; sums are then\n"
      "formed in another order, and losses agree within rounding.");
  add_eval_perplexity(*eval);
  add_eval_per_token(*eval);
  add_eval_needle(*eval);
  add_eval_recall(*eval);
  add_eval_choice(*eval);
  add_eval_logits(*eval);
}

}  // namespace weft
