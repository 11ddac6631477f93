// Needle in a haystack: a fact is hidden at some depth of a long text and queried at its end.
#include <cmath>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "launcher/eval/eval.h"
#include "launcher/plot/plot.h"

namespace weft {
namespace {

struct NeedleOptions {
  EvalOptions eval;
  EvalText text;
  std::string mode = "standard";
  std::vector<int64_t> lengths;
  std::vector<double> depths = {0, 25, 50, 75, 100};
  int64_t trials = 4;
  uint64_t seed = 1;
};

// One trial: the fact, the question that ends the text, and the expected answer.
struct Needle {
  std::string fact, question, answer;
};

Needle needle_of(const NeedleOptions& o, int64_t trial) {
  static constexpr const char* kNames[] = {"Alma",  "Boris", "Clara", "Dario", "Edith",  "Faris",
                                           "Greta", "Hamid", "Ilse",  "Jonas", "Kamala", "Lorenz"};
  const RandomStream stream(o.seed, "needle " + std::to_string(trial));
  const std::string name = kNames[stream.below(0, std::size(kNames))];
  const std::string number = std::to_string(1000 + stream.below(1, 9000));
  const std::string asked = fmt::format("What is the pass code of {}?", name);
  const std::string start = fmt::format("The pass code of {} is", name);
  // Easy: the question also precedes the fact, so that the end of the text repeats it verbatim.
  return {.fact = fmt::format("\n{}{} {}.\n", o.mode == "easy" ? asked + " " : "", start, number),
          .question = fmt::format("\n{} {}", asked, start),
          .answer = " " + number};
}

// Default haystack: sentences without pass codes.
std::string filler(int64_t bytes, uint64_t seed) {
  static constexpr const char* kWho[] = {"The river",     "A gardener",      "The old clock",
                                         "Our neighbour", "The night train", "A small boat",
                                         "The baker"};
  static constexpr const char* kDoes[] = {"waits for", "passes",   "remembers",
                                          "follows",   "looks at", "moves towards"};
  static constexpr const char* kWhat[] = {"the quiet square", "a field of barley",
                                          "the first snow",   "the harbour wall",
                                          "an empty street",  "the morning light"};
  const RandomStream stream(seed, "filler");
  std::string text;
  for (uint64_t i = 0; static_cast<int64_t>(text.size()) < bytes; i += 3) {
    text += fmt::format("{} {} {}. ", kWho[stream.below(i, std::size(kWho))],
                        kDoes[stream.below(i + 1, std::size(kDoes))],
                        kWhat[stream.below(i + 2, std::size(kWhat))]);
  }
  return text;
}

std::vector<int32_t> joined(const std::vector<std::vector<int32_t>>& documents) {
  std::vector<int32_t> line;
  for (const auto& d : documents) line.insert(line.end(), d.begin(), d.end());
  return line;
}

// Position before `at` between two words, so that the needle does not split a word.
int64_t between_words(const Tokenizer& tokenizer, const std::vector<int32_t>& hay, int64_t begin,
                      int64_t at) {
  for (int64_t back = at; back > begin && back > at - 64; --back) {
    std::string bytes;
    const int32_t id = hay[static_cast<size_t>(back)];
    if (id < tokenizer.vocab()) tokenizer.append_bytes(id, bytes);
    if (!bytes.empty() && (bytes[0] == ' ' || bytes[0] == '\n')) return back;
  }
  return at;
}

class Haystack {
 public:
  Haystack(const EvalSession& session, const NeedleOptions& o, int64_t longest)
      : o_(o), tokenizer_(session.tokenizer()) {
    const bool own = o.text.data.empty() && o.text.file.empty();
    hay_ = own ? tokenizer_.encode(filler(longest * 8, o.seed)) : joined(session.documents(o.text));
    // Start tokens of a text precede the haystack.
    const auto start = tokenizer_.before_text();
    if (!start.empty() && hay_.size() >= start.size() &&
        std::equal(start.begin(), start.end(), hay_.begin())) {
      hay_.erase(hay_.begin(), hay_.begin() + std::ssize(start));
    }
  }

  // `length` tokens with the needle at `depth` percent, then the answer, which alone is scored.
  ScoredText text(int64_t length, double depth, int64_t trial) const {
    const Needle needle = needle_of(o_, trial);
    const auto fact = tokenizer_.encode(needle.fact), question = tokenizer_.encode(needle.question);
    const auto answer = tokenizer_.encode(needle.answer);
    const auto start = tokenizer_.before_text();
    const int64_t hay = length - static_cast<int64_t>(start.size() + fact.size() + question.size());
    if (hay < 1) {
      throw ConfigError("--lengths {}: needle and question alone take {} tokens; at least {}",
                        length, length - hay, length - hay + 1);
    }
    if (hay + 1 > static_cast<int64_t>(hay_.size())) {
      throw ConfigError("--lengths {}: the text has only {} tokens; give a longer --data or --text",
                        length, hay_.size());
    }
    const RandomStream stream(o_.seed, "haystack " + std::to_string(trial));
    const auto begin = static_cast<int64_t>(
        stream.below(0, static_cast<uint64_t>(static_cast<int64_t>(hay_.size()) - hay)));
    const int64_t at = between_words(tokenizer_, hay_, begin,
                                     begin + std::llround(depth / 100 * static_cast<double>(hay)));
    std::vector<int32_t> tokens(start.begin(), start.end());
    tokens.insert(tokens.end(), hay_.begin() + begin, hay_.begin() + at);
    tokens.insert(tokens.end(), fact.begin(), fact.end());
    tokens.insert(tokens.end(), hay_.begin() + at, hay_.begin() + begin + hay);
    tokens.insert(tokens.end(), question.begin(), question.end());
    const auto first = static_cast<int64_t>(tokens.size());
    tokens.insert(tokens.end(), answer.begin(), answer.end());
    return {std::move(tokens), first};
  }

 private:
  const NeedleOptions& o_;
  const Tokenizer& tokenizer_;
  std::vector<int32_t> hay_;
};

void needle(NeedleOptions o, EvalSession& session) {
  const int64_t trained = session.config().train.sequence;
  if (o.lengths.empty()) o.lengths = {trained / 2, trained, 2 * trained};
  const Haystack haystack(session, o, *std::max_element(o.lengths.begin(), o.lengths.end()));
  const auto depths = static_cast<int64_t>(o.depths.size());
  const auto cells = static_cast<int64_t>(o.lengths.size()) * depths;
  const auto results = session.map(
      cells * o.trials,
      [&](int64_t item) {
        const int64_t cell = item / o.trials;
        return std::vector<ScoredText>{haystack.text(o.lengths[static_cast<size_t>(cell / depths)],
                                                     o.depths[static_cast<size_t>(cell % depths)],
                                                     item % o.trials)};
      },
      [](int64_t, const EvalSession::Scores& scores) {
        std::vector<double> out = {1.0, 0.0};  // every token of the answer right; loss per token
        for (const TokenScore& s : scores[0]) {
          if (!s.preferred) out[0] = 0;
          out[1] += s.loss / static_cast<double>(scores[0].size());
        }
        return out;
      });
  HeatMap map{.title = "Needle in a haystack, " + o.mode + " mode",
              .x = "tokens",
              .y = "depth",
              .columns = {},
              .rows = {},
              .values = {}};
  for (const int64_t length : o.lengths) map.columns.push_back(std::to_string(length));
  nlohmann::json rows = nlohmann::json::array();
  for (int64_t d = 0; d < depths; ++d) {
    map.rows.push_back(fmt::format("{:.0f} %", o.depths[static_cast<size_t>(d)]));
    map.values.emplace_back();
    for (size_t l = 0; l < o.lengths.size(); ++l) {
      double found = 0, loss = 0;
      for (int64_t t = 0; t < o.trials; ++t) {
        const auto& r =
            results[static_cast<size_t>((static_cast<int64_t>(l) * depths + d) * o.trials + t)];
        found += r[0] / static_cast<double>(o.trials);
        loss += r[1] / static_cast<double>(o.trials);
      }
      map.values.back().push_back(found);
      rows.push_back({{"length", o.lengths[l]},
                      {"depth", o.depths[static_cast<size_t>(d)]},
                      {"accuracy", found},
                      {"loss", loss}});
    }
  }
  if (session.speaks()) {
    fmt::print("found, by depth (rows) and tokens (columns); trained on {}\n{:>8}", trained, "");
    for (const auto& c : map.columns) fmt::print("{:>9}", c);
    for (size_t r = 0; r < map.rows.size(); ++r) {
      fmt::print("\n{:>8}", map.rows[r]);
      for (const double v : map.values[r]) fmt::print("{:>7.0f} %", 100 * v);
    }
    fmt::print("\n");
  }
  session.write({{"eval", "needle"}, {"mode", o.mode}, {"trials", o.trials}, {"rows", rows}},
                page(map.title, {svg(map)}));
}

}  // namespace

void add_eval_needle(CLI::App& eval) {
  auto o = std::make_shared<NeedleOptions>();
  CLI::App* command =
      eval.add_subcommand("needle", "Find a fact in a long text, by its depth and the length");
  command->footer(
      "Example: weft eval needle --checkpoint runs/a --data "
      "corpus --lengths 1024,4096 --html needle.html\n"
      "standard: the text contains only the answer. easy: the question precedes it.\n"
      "A needle is found when every token of the answer is the model's first choice.\n"
      "JSON: mode, trials, rows [{length, depth, accuracy, loss}], checkpoint.");
  add_eval_options(*command, o->eval, Page::kYes);
  add_eval_text(*command, o->text);
  command->add_option("--mode", o->mode, "standard or easy")
      ->check(CLI::IsMember({"standard", "easy"}))
      ->capture_default_str();
  command
      ->add_option("--lengths", o->lengths,
                   "Tokens, separated by commas; default: half, once and twice the training length")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::PositiveNumber);
  command->add_option("--depths", o->depths, "Percent of the text before the needle")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0.0, 100.0));
  command->add_option("--trials", o->trials, "Texts for each length and depth")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--seed", o->seed, "Seed of needles and haystacks")->capture_default_str();
  command->callback([o] { evaluate(o->eval, [&](EvalSession& session) { needle(*o, session); }); });
}

}  // namespace weft
