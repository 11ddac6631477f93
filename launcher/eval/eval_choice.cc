// Multiple choice: the option that the model finds most probable after the context.
#include <fstream>

#include "core/base/error.h"
#include "launcher/eval/eval.h"

namespace weft {
namespace {

struct ChoiceOptions {
  EvalOptions eval;
  std::string file, shots_file;
  int64_t shots = 0, limit = 0;
};

struct Question {
  std::string context;
  std::vector<std::string> options;
  size_t answer = 0;
};

Question question_of(const std::string& line, const std::string& where) {
  const nlohmann::json j = nlohmann::json::parse(line, nullptr, false);
  if (!j.is_object()) throw ConfigError("{}: is not a JSON object", where);
  const auto context = j.find("context"), options = j.find("options"), answer = j.find("answer");
  if (context == j.end() || !context->is_string() || options == j.end() || !options->is_array() ||
      answer == j.end() || !answer->is_number_integer()) {
    throw ConfigError(
        "{}: needs \"context\" (text), \"options\" (texts) "
        "and \"answer\" (the index of the correct one, from 0)",
        where);
  }
  Question q;
  q.context = context->get<std::string>();
  for (const auto& option : *options) {
    if (!option.is_string() || option.get<std::string>().empty()) {
      throw ConfigError("{}: every option must be a non-empty text", where);
    }
    q.options.push_back(option.get<std::string>());
  }
  const auto right = answer->get<int64_t>();
  if (q.options.size() < 2) throw ConfigError("{}: needs at least two options", where);
  if (right < 0 || right >= static_cast<int64_t>(q.options.size())) {
    throw ConfigError("{}: answer {} is not an index of {} options (0 to {})", where, right,
                      q.options.size(), q.options.size() - 1);
  }
  q.answer = static_cast<size_t>(right);
  return q;
}

std::vector<Question> read_questions(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw ConfigError("{}: cannot be read", path);
  std::vector<Question> questions;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    questions.push_back(question_of(line, fmt::format("{}:{}", path, number)));
  }
  return questions;
}

// The option as the continuation of the context, which begins with the start tokens of the
// tokenizer's template. Spaces at the context's end are tokenized with the option, as in running
// text.
ScoredText asked(const Tokenizer& tokenizer, const std::string& before, const std::string& option) {
  const size_t end = before.find_last_not_of(' ') + 1;
  const auto given = tokenizer.encode_prompt(before.substr(0, end));
  ScoredText text{tokenizer.encode_prompt(before + option), static_cast<int64_t>(given.size())};
  if (text.first == 0) {
    text.tokens.insert(text.tokens.begin(), tokenizer.end_of_document());
    text.first = 1;
  }
  return text;
}

size_t best(const std::vector<double>& scores) {
  return static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

// The questions to answer, and the solved examples that precede each.
struct Questions {
  std::vector<Question> asked, examples;
};

Questions questions_of(const ChoiceOptions& o) {
  std::vector<Question> questions = read_questions(o.file);
  std::vector<Question> examples;
  if (o.shots > 0) {
    examples = o.shots_file.empty() ? questions : read_questions(o.shots_file);
    if (static_cast<int64_t>(examples.size()) < o.shots) {
      throw ConfigError("--shots {}: {} has only {} questions", o.shots,
                        o.shots_file.empty() ? o.file : o.shots_file, examples.size());
    }
    examples.resize(static_cast<size_t>(o.shots));
    if (o.shots_file.empty()) questions.erase(questions.begin(), questions.begin() + o.shots);
  }
  if (o.limit > 0 && static_cast<int64_t>(questions.size()) > o.limit) {
    questions.resize(static_cast<size_t>(o.limit));
  }
  if (questions.empty()) throw ConfigError("{}: contains no question to answer", o.file);
  return {std::move(questions), std::move(examples)};
}

void choice(const Questions& all, EvalSession& session) {
  const auto& [questions, examples] = all;
  std::string before;
  for (const Question& q : examples) before += q.context + q.options[q.answer] + "\n\n";
  const auto results = session.map(
      static_cast<int64_t>(questions.size()),
      [&](int64_t i) {
        const Question& q = questions[static_cast<size_t>(i)];
        std::vector<ScoredText> texts;
        for (const std::string& option : q.options) {
          texts.push_back(asked(session.tokenizer(), before + q.context, option));
        }
        return texts;
      },
      [&](int64_t i, const EvalSession::Scores& scores) {
        const Question& q = questions[static_cast<size_t>(i)];
        std::vector<double> plain, by_length;
        for (size_t k = 0; k < scores.size(); ++k) {
          double log_probability = 0;
          for (const TokenScore& s : scores[k]) log_probability -= s.loss;
          plain.push_back(log_probability);
          by_length.push_back(log_probability / static_cast<double>(q.options[k].size()));
        }
        return std::vector<double>{best(plain) == q.answer ? 1.0 : 0.0,
                                   best(by_length) == q.answer ? 1.0 : 0.0};
      });
  double right = 0, right_by_length = 0;
  for (const auto& r : results) right += r[0], right_by_length += r[1];
  const auto count = static_cast<double>(results.size());
  if (session.speaks()) {
    fmt::print(
        "{} questions, {} examples before each\n"
        "acc {:.4f}  acc_norm {:.4f} (log-probability per byte)\n",
        results.size(), examples.size(), right / count, right_by_length / count);
  }
  session.write({{"eval", "choice"},
                 {"questions", results.size()},
                 {"shots", examples.size()},
                 {"acc", right / count},
                 {"acc_norm", right_by_length / count}});
}

}  // namespace

void add_eval_choice(CLI::App& eval) {
  auto o = std::make_shared<ChoiceOptions>();
  CLI::App* command = eval.add_subcommand("choice", "Multiple-choice questions from a JSONL file");
  command->footer(
      "Example: weft eval choice --checkpoint runs/a --file questions.jsonl --shots 5\n"
      "A line: {\"context\": \"Water freezes at\", "
      "\"options\": [\" 0 C\", \" 50 C\"], \"answer\": 0}\n"
      "acc: the most probable option is the right one. acc_norm: the most probable per byte.\n"
      "JSON: questions, shots, acc, acc_norm, checkpoint.");
  add_eval_options(*command, o->eval, Page::kNo);
  command->add_option("--file", o->file, "Questions, a JSON object each line")->required();
  command
      ->add_option("--shots", o->shots,
                   "Solved examples before each question: the first "
                   "of the file (then not scored), or of --shots-file")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--shots-file", o->shots_file, "File of the solved examples");
  command->add_option("--limit", o->limit, "Maximum number of questions")
      ->check(CLI::PositiveNumber);
  command->callback([o] {
    const Questions questions = questions_of(*o);
    evaluate(o->eval, [&](EvalSession& session) { choice(questions, session); });
  });
}

}  // namespace weft
